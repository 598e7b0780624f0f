package docs

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documentsWithCommands are those whose blocks of commands name the one who runs them.
func documentsWithCommands() []string {
	return []string{
		"operating.md", "install.md", "migrate.md", "releases.md", "dashboard.md", "../CONTRIBUTING.md", "../README.md",
	}
}

// The clusters of the sandbox that commands may be for.
func clusters() []string {
	return []string{"consumer1", "consumer2", "broker", "provider1", "provider2", "provider3"}
}

func TestEveryCommandNamesWhoRunsIt(t *testing.T) {
	byTest := 0
	for _, path := range documentsWithCommands() {
		d, err := Read(path)
		require.NoError(t, err)
		for i := range d.Blocks {
			b := &d.Blocks[i]
			if !b.IsCommand() {
				require.Empty(t, b.RunBy, "%s:%d: there is no command", path, b.Line)
				continue
			}
			require.NotEmpty(t, b.Commands(), "%s:%d: no command", path, b.Line)
			cluster, sandbox := strings.CutPrefix(b.RunBy, RunBySandbox)
			switch {
			case b.RunBy == RunByTest:
				byTest++
				require.Equal(t, "console", b.Language, "%s:%d: what the commands print is compared", path, b.Line)
			case b.RunBy == RunByInstall:
				require.Contains(t, []string{"install.md", "../README.md"}, path, "%s:%d: test/install reads these", path, b.Line)
			case sandbox:
				require.Contains(t, clusters(), cluster, "%s:%d: a cluster of the sandbox", path, b.Line)
			default:
				require.Equal(t, RunByReader, b.RunBy, "%s:%d: write <!-- run by: … --> right before the block", path, b.Line)
			}
		}
	}
	require.Positive(t, byTest)
}

var (
	named  = regexp.MustCompile(`(?:^|[\s=])((?:deploy|test|docs|bin|cmd|pkg)/[\w./-]*\w)`)
	target = regexp.MustCompile(`^make(?: ([a-z0-9-]+))`)
)

func TestCommandsNameWhatThereIs(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	for name, d := range everyDocument(t) {
		for i := range d.Blocks {
			if !d.Blocks[i].IsCommand() {
				continue
			}
			for _, command := range d.Blocks[i].Commands() {
				for _, file := range named.FindAllStringSubmatch(command, -1) {
					if strings.HasPrefix(file[1], "bin/") {
						continue // Built.
					}
					_, err := os.Stat(filepath.Join("..", file[1]))
					require.NoError(t, err, "%s:%d: %s", name, d.Blocks[i].Line, command)
				}
				if make := target.FindStringSubmatch(command); make != nil {
					require.Contains(t, string(makefile), "\n"+make[1]+":", "%s:%d: %s", name, d.Blocks[i].Line, command)
				}
			}
		}
	}
}

// mentioned is a test, with its subtests.
var mentioned = regexp.MustCompile("`(Test[A-Z]\\w*)((?:/\\w+)*)`")

func TestTestsThatAreMentionedExist(t *testing.T) {
	sources := testSources(t)
	count := 0
	for name, d := range everyDocument(t) {
		for i := range d.Sections {
			for _, parts := range mentioned.FindAllStringSubmatch(d.Sections[i].Text, -1) {
				count++
				require.Contains(t, sources, "\nfunc "+parts[1]+"(t *testing.T)", "%s: %s", name, parts[0])
				for sub := range strings.SplitSeq(strings.TrimPrefix(parts[2], "/"), "/") {
					require.Contains(t, sources, strings.ReplaceAll(sub, "_", " "), "%s: %s", name, parts[0])
				}
			}
		}
	}
	require.Positive(t, count)
}

// testSources are all files with tests, one after the other.
func testSources(t *testing.T) string {
	t.Helper()
	var all bytes.Buffer
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "dist"}, entry.Name()):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	}))
	return all.String()
}
