package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/build"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/plugin"
	"github.com/capacitorset/liqo-broker-vk/docs"
)

// The commands in the documentation print exactly the output that it shows. UPDATE=1 writes the output.
func TestDocumentation(t *testing.T) {
	for path, runs := range map[string]func(*docs.Block) bool{
		"../../docs/cli.md":       func(b *docs.Block) bool { return b.Language == "console" },
		"../../docs/operating.md": func(b *docs.Block) bool { return b.RunBy == docs.RunByTest },
		"../../docs/simulate.md":  func(b *docs.Block) bool { return b.Language == "console" },
	} {
		t.Run(path, func(t *testing.T) {
			path, err := filepath.Abs(path)
			require.NoError(t, err)
			t.Chdir("../..") // The files that commands name are relative to the root of the repository.
			d, err := docs.Read(path)
			require.NoError(t, err)
			written, err := os.ReadFile(path)
			require.NoError(t, err)
			blocks := map[int]string{}
			for i := range d.Blocks {
				if runs(&d.Blocks[i]) {
					blocks[d.Blocks[i].Line] = printed(t, d.Blocks[i].Commands())
				}
			}
			require.NotEmpty(t, blocks)
			printed := docs.Rewritten(string(written), blocks)
			if os.Getenv("UPDATE") != "" {
				require.NoError(t, os.WriteFile(path, []byte(printed), 0o600))
				return
			}
			require.Equal(t, string(written), printed, "run UPDATE=1 go test ./cmd/...")
		})
	}
}

// printed returns the output of the commands, run one after the other.
func printed(t *testing.T, commands []string) string {
	t.Helper()
	f := newFederation(t)
	var out strings.Builder
	for _, command := range commands {
		words := strings.Fields(command)
		out.WriteString("$ " + command + "\n")
		switch {
		case len(words) > 2 && words[0] == "kubectl" && words[1] == "broker":
			_, text := f.kubectlBroker(t, words[2:]...)
			out.WriteString(text)
		case len(words) > 1 && words[0] == "liqo-broker-vk":
			// The progress depends on how fast the machine is.
			_ = exitCode(run(t.Context(), words[1:], &out, io.Discard), &out)
		default:
			require.Failf(t, "not a command of this program", "%s", command)
		}
	}
	return out.String()
}

// kubectlBroker runs the plugin as a user would, and returns the exit code and the whole output.
func (f *federation) kubectlBroker(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	root := plugin.Plugin{Build: build.Of(version, commit), Open: f.open}.Root("kubectl broker")
	code := exitCode(execute(t.Context(), root, args, &out, &out), &out)
	return code, out.String()
}
