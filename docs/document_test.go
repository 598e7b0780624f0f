package docs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.md")
	require.NoError(t, os.WriteFile(path, []byte("# A [title](t.md), with `code`\n"+
		"See [this](a.md#b) and `[not](this)`, ![picture](c.svg) or <https://d.e>.\n"+
		"\n<!-- run by: sandbox broker -->\n```sh\n# A comment [no link](x)\nkubectl get \\\n  pods\nls\n```\n"+
		"## Twice\n```console\n$ kubectl get nodes\nNAME   AGE\n```\n<!-- run by: reader -->\n\n"+
		"```yaml\na: 1\n```\n## Twice\nLast [too][r].\n\n[r]: f.md\n"), 0o600))
	d, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, []Link{{1, "t.md"}, {2, "a.md#b"}, {2, "c.svg"}, {2, "https://d.e"}, {24, "f.md"}}, d.Links)

	require.Len(t, d.Sections, 3)
	require.Equal(t, "a-title-with-code", d.Sections[0].Anchor)
	require.Equal(t, []string{"twice", "twice-1"}, []string{d.Sections[1].Anchor, d.Sections[2].Anchor})
	require.Equal(t, "Last [too][r].\n\n[r]: f.md\n", d.Sections[2].Text)

	require.Len(t, d.Blocks, 3)
	require.Equal(t, "sandbox broker", d.Blocks[0].RunBy)
	require.Equal(t, []string{"kubectl get    pods", "ls"}, d.Blocks[0].Commands())
	require.Empty(t, d.Blocks[1].RunBy)
	require.Equal(t, []string{"kubectl get nodes"}, d.Blocks[1].Commands())
	require.Equal(t, []bool{true, true, false}, []bool{d.Blocks[0].IsCommand(), d.Blocks[1].IsCommand(), d.Blocks[2].IsCommand()})
	require.Empty(t, d.Blocks[2].RunBy, "the comment is not right before it")

	require.NoError(t, os.WriteFile(path, []byte("```sh\nls\n"), 0o600))
	_, err = Read(path)
	require.ErrorContains(t, err, "x.md:1: the block is not closed")
}

func TestRewritten(t *testing.T) {
	const text = "a\n```console\n$ x\nold\n```\nb\n```yaml\nc: 1\n```\n"
	require.Equal(t,
		"a\n```console\n$ x\nnew\nnewer\n```\nb\n```yaml\nc: 1\n```\n",
		Rewritten(text, map[int]string{2: "$ x\nnew\nnewer\n"}))
	require.Equal(t, text, Rewritten(text, nil))
}
