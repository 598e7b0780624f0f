package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"github.com/stretchr/testify/require"
)

// instructions returns the instructions of the repository's Dockerfile, in one line each.
func instructions(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "Dockerfile"))
	require.NoError(t, err)
	var out []string
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		if line = strings.Join(strings.Fields(line), " "); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// A container engine must build the same image from the Dockerfile. No engine is available here, so the test compares
// the parts that can be compared.
func TestTheDockerfileMakesTheSameImage(t *testing.T) {
	lines := instructions(t)
	all := strings.Join(lines, "\n")
	for _, flag := range goFlags("$VERSION", "$COMMIT") {
		name, value, quoted := strings.Cut(flag, "=")
		if quoted && strings.Contains(value, " ") {
			flag = name + "=" + strconv.Quote(value)
		}
		require.Contains(t, all, " "+flag+" ")
	}
	for key, value := range labels(release{version: "$VERSION", commit: "$COMMIT"}) {
		if key != "org.opencontainers.image.created" { // An engine sets it itself.
			require.Contains(t, all, key+"="+strconv.Quote(value))
		}
	}
	image, err := imageOf(release{}, mustPlatform(t, "linux/amd64"), smallLayer(t))
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	last := lines[len(lines)-4:]
	require.Equal(t, []string{
		"ENV " + config.Config.Env[0], "WORKDIR " + config.Config.WorkingDir, "USER " + config.Config.User,
		`ENTRYPOINT ["` + config.Config.Entrypoint[0] + `"]`,
	}, last)
}

func TestTheDockerfileMakesTheSameFileSystem(t *testing.T) {
	source := t.TempDir()
	root := filepath.Join(source, "rootfs")
	license := filepath.Join(source, "LICENSE")
	require.NoError(t, os.WriteFile(license, []byte("text"), 0o644))
	// The output of the preceding go build.
	binaries := map[string]string{}
	for _, p := range programs() {
		binaries[p.name] = filepath.Join(root, "usr", "bin", p.name)
		require.NoError(t, os.MkdirAll(filepath.Dir(binaries[p.name]), 0o755))
		require.NoError(t, os.WriteFile(binaries[p.name], []byte(p.name), 0o755))
	}
	for _, line := range instructions(t) {
		script, ok := strings.CutPrefix(line, "RUN ")
		if !ok || strings.Contains(script, "go ") {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", "umask 022; "+strings.ReplaceAll(script, "/rootfs", root))
		cmd.Dir = source
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}

	want := map[string]string{}
	for _, e := range fileSystem(binaries, license) {
		content := e.text + e.link
		if e.file != "" {
			read, err := os.ReadFile(e.file)
			require.NoError(t, err)
			content = string(read)
		}
		want[strings.TrimSuffix(e.name, "/")] = strconv.FormatInt(e.mode, 8) + " " + content
	}
	require.Equal(t, want, tree(t, root))
}

// A container engine sends the Dockerfile only the files that .dockerignore does not exclude, by Docker's own matcher. A
// COPY of an excluded file fails the build.
func TestTheDockerfileCopiesNoExcludedFile(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.Open(filepath.Join(root, ".dockerignore"))
	require.NoError(t, err)
	defer text.Close()
	patterns, err := ignorefile.ReadAll(text)
	require.NoError(t, err)
	excluded, err := patternmatcher.New(patterns)
	require.NoError(t, err)
	copied := 0
	for _, line := range instructions(t) {
		arguments, ok := strings.CutPrefix(line, "COPY ")
		if !ok || strings.HasPrefix(arguments, "--from=") {
			continue
		}
		fields := strings.Fields(arguments)
		for _, source := range fields[:len(fields)-1] {
			files, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "--", source).Output()
			require.NoError(t, err)
			require.NotEmpty(t, files, "%s: there is no such file", line)
			for file := range strings.Lines(string(files)) {
				matches, err := excluded.MatchesOrParentMatches(strings.TrimSpace(file))
				require.NoError(t, err)
				require.False(t, matches, "%s: .dockerignore excludes %s", line, file)
				copied++
			}
		}
	}
	require.Greater(t, copied, 100)
}

// tree returns the mode and content, or link target, of each file below a directory.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, found fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := found.Info()
		if err != nil {
			return err
		}
		mode := int64(info.Mode().Perm())
		if info.Mode()&fs.ModeSticky != 0 {
			mode |= 0o1000
		}
		var content string
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			content, err = os.Readlink(path)
		case !info.IsDir():
			var read []byte
			read, err = os.ReadFile(path)
			content = string(read)
		}
		name, _ := filepath.Rel(root, path)
		out[name] = strconv.FormatInt(mode, 8) + " " + content
		return err
	}))
	return out
}
