package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheListCanBeRead(t *testing.T) {
	rules, err := parse(list)
	require.NoError(t, err)
	assert.NotEmpty(t, rules)
	for _, wrong := range []string{"1\t2\tonly three", "a\t1\tx\ty", "1\tb\tx\ty", "1\t1\t(\ty"} {
		_, err := parse(wrong)
		assert.ErrorContains(t, err, "words.txt", "%q", wrong)
	}
}

func TestOnlyCommentsOfGoFilesAreRead(t *testing.T) {
	got := commentsOf("a.go", []byte("package a // one\n\nvar s = \"// none\"\n\n// two\n// three\n\n/* four\nfive */\n"))
	assert.Equal(t, []text{{"a.go", 1, "// one"}, {"a.go", 5, "// two\n// three"}, {"a.go", 8, "/* four\nfive */"}}, got)
}

func TestCodeBlocksOfDocumentsAreNotRead(t *testing.T) {
	got := paragraphsOf("a.md", []byte("one\nmore\n```sh\nnone\n```\ntwo\n\nthree\n"))
	assert.Equal(t, []text{{"a.md", 1, "one\nmore"}, {"a.md", 6, "two"}, {"a.md", 8, "three"}}, got)
}

func TestAWordingAboveItsCeilingIsAnError(t *testing.T) {
	in := []text{{"a.go", 3, "// it is in vain, and In\n// vain"}, {"b.go", 7, "// in time"}}
	for ceiling, want := range map[string]string{"1": "1 wordings occur more often", "2": "", "3": ""} {
		rules, err := parse(ceiling + "\t0\tin vain\tfailed")
		require.NoError(t, err)
		var out strings.Builder
		err = checkAll(&out, rules, in, nil)
		switch want {
		case "":
			require.NoError(t, err)
			assert.Equal(t, ceiling == "3", strings.Contains(out.String(), "can be lowered to 2"))
			assert.NotContains(t, out.String(), "a.go")
		default:
			require.ErrorContains(t, err, want)
			assert.Contains(t, out.String(), "a.go:3: in vain\na.go:3: In\n// vain\n")
			assert.Contains(t, out.String(), "in comments: 2, at most 1; write failed")
		}
	}
}

func TestFilesOfARepositoryAreRead(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a.go": "package a\n\n// that of " + strings.Repeat("that of ", 5000) + "\n", "CHANGELOG.md": strings.Repeat("that of ", 5000),
		"zz_b.go": "package a\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	git := func(args ...string) {
		require.NoError(t, exec.Command("git", append([]string{"-C", dir}, args...)...).Run())
	}
	git("init", "-q")
	git("add", "CHANGELOG.md")
	require.NoError(t, run([]string{"-directory=" + dir}, &strings.Builder{}, &strings.Builder{}), "the changelog is as it was written")
	git("add", "a.go")
	require.ErrorContains(t, run([]string{"-directory=" + dir}, &strings.Builder{}, &strings.Builder{}), "more often")
	require.ErrorContains(t, run([]string{"-directory=" + t.TempDir()}, &strings.Builder{}, &strings.Builder{}), "git ls-files")
}
