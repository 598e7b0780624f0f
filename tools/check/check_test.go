package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPackagesToLint(t *testing.T) {
	all := []string{"./..."}
	for name, tc := range map[string]struct {
		module string
		files  []string
		want   []string
	}{
		"none":                            {".", nil, nil},
		"each package once":               {".", []string{"pkg/b/b.go", "pkg/a/x.go", "pkg/a/y_test.go"}, []string{"./pkg/a", "./pkg/b"}},
		"the package of the root":         {".", []string{"doc.go"}, []string{"./"}},
		"not those of other modules":      {".", []string{"test/e2e/a.go", "tools/check/main.go"}, nil},
		"those of a module":               {"test", []string{"test/e2e/a.go", "pkg/a/a.go"}, []string{"./e2e"}},
		"those of a module in a module":   {"test/interop", []string{"test/interop/a.go", "test/e2e/a.go"}, []string{"./"}},
		"no other files":                  {".", []string{"README.md", "deploy/broker.yaml"}, nil},
		"none that is gone":               {".", []string{"pkg/gone/a.go"}, nil},
		"none that is only data":          {".", []string{"pkg/a/testdata/a.go"}, nil},
		"all when dependencies change":    {"test", []string{"test/go.mod"}, all},
		"all when the linters change":     {"tools", []string{".golangci.yml"}, all},
		"not for another module's go.mod": {".", []string{"test/go.mod"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			exists := func(file string) bool { return file != "pkg/gone/a.go" }
			require.Equal(t, tc.want, packagesToLint(tc.module, tc.files, exists))
		})
	}
}

func TestWhatGoDoesNotSee(t *testing.T) {
	s := suite{reads: []string{"docs", "Dockerfile"}}
	for file, want := range map[string]bool{
		"docs/a.md": true, "Dockerfile": true, "documents/a.md": false, "pkg/docs/a.md": false,
	} {
		require.Equal(t, want, s.unseen([]string{"x.go", file}), file)
	}
	require.False(t, s.unseen(nil))
}

// All modules and suites that are named here exist, and every module is named.
func TestModulesAndSuitesAreThoseOfTheRepository(t *testing.T) {
	found := map[string]bool{}
	root := filepath.Join("..", "..")
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "--", "go.mod", "**/go.mod").Output()
	require.NoError(t, err)
	for file := range bytes.FieldsSeq(out) {
		found[filepath.Dir(string(file))] = true
	}
	require.Len(t, modules(), len(found))
	for _, m := range modules() {
		require.True(t, found[m], m)
	}
	for _, s := range suites() {
		for _, read := range s.reads {
			_, err := os.Stat(filepath.Join(root, read))
			require.NoError(t, err)
		}
	}
}

func TestChangedFiles(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{
			"-c", "user.name=a", "-c", "user.email=a@example.test", "-c", "init.defaultBranch=main",
		}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	git("init")
	write("same.go", "package a\n")
	write("gone.go", "package a\n")
	write(".gitignore", "ignored.go\n")
	git("add", ".")
	git("commit", "-m", "one")
	git("switch", "-c", "branch")
	write("committed.go", "package a\n")
	git("add", ".")
	git("commit", "-m", "two")
	git("rm", "gone.go")
	write("new.go", "package  a\n")
	write("ignored.go", "package a\n")

	c := checker{root: dir, stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
	files, err := c.changed(t.Context(), "main")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"committed.go", "gone.go", "new.go"}, files)
	require.ErrorContains(t, c.formatted(t.Context(), files), "not formatted by gofmt:\nnew.go\n")
	require.NoError(t, c.formatted(t.Context(), []string{"committed.go", "gone.go"}))

	files, err = c.changed(t.Context(), "no-such-branch")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"gone.go", "new.go"}, files, "those since the last commit")
}
