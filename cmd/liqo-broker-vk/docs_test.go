package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The commands in the documentation print what it says they do. With UPDATE=1 it is written anew.
func TestDocumentation(t *testing.T) {
	const path = "../../docs/cli.md"
	written, err := os.ReadFile(path)
	require.NoError(t, err)

	var out strings.Builder
	var f *federation
	for line := range strings.Lines(string(written)) {
		switch {
		case line == "```console\n":
			f = newFederation(t)
			out.WriteString(line)
		case line == "```\n":
			f = nil
			out.WriteString(line)
		case f == nil:
			out.WriteString(line)
		case strings.HasPrefix(line, "$ kubectl broker "):
			out.WriteString(line)
			_, text := f.kubectlBroker(t, strings.Fields(line)[3:]...)
			out.WriteString(text)
		}
	}
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(out.String()), 0o600))
		return
	}
	require.Equal(t, string(written), out.String(), "run UPDATE=1 go test ./cmd/...")
}

// kubectlBroker runs the plugin as a person would, and returns the exit code and all that is printed.
func (f *federation) kubectlBroker(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	code := exitCode(execute(t.Context(), newPluginCommand(people{open: f.open}), args, &out, &out), &out)
	return code, out.String()
}
