package build

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestVersionIsForPeopleAndForPrograms(t *testing.T) {
	built := Of(Unreleased, "")
	for name, tc := range map[string]struct {
		args []string
		read func(t *testing.T, out []byte)
	}{
		"for people": {nil, func(t *testing.T, out []byte) {
			require.Contains(t, string(out), "liqo-broker-vk "+built.Version+"\n")
			require.Contains(t, string(out), "\nkubernetes:  "+built.Kubernetes+"\n")
		}},
		"the version alone": {[]string{"--short"}, func(t *testing.T, out []byte) {
			require.Equal(t, built.Version+"\n", string(out))
		}},
		"json": {[]string{"-o", "json"}, func(t *testing.T, out []byte) {
			var got Info
			require.NoError(t, json.Unmarshal(out, &got))
			require.Equal(t, built, got)
		}},
		"yaml": {[]string{"--output=yaml"}, func(t *testing.T, out []byte) {
			var got Info
			require.NoError(t, yaml.UnmarshalStrict(out, &got))
			require.Equal(t, built, got)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.NoError(t, printVersion(&stdout, &stderr, tc.args...))
			require.Empty(t, stderr.String())
			tc.read(t, stdout.Bytes())
		})
	}
}

// printVersion runs the command version.
func printVersion(stdout, stderr io.Writer, args ...string) error {
	cmd := NewVersionCommand(Of(Unreleased, ""))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return cmd.Execute()
}

func TestVersionRefusesWhatItCannotPrint(t *testing.T) {
	for args, message := range map[[2]string]string{
		{"-o", "xml"}:         "--output=xml: use one of text, json, yaml",
		{"--short", "-ojson"}: "--short together with --output=json",
	} {
		var stdout, stderr bytes.Buffer
		require.ErrorContains(t, printVersion(&stdout, &stderr, args[:]...), message)
		require.Empty(t, stdout.String())
	}
}

func TestTheLinkerIsBelievedFirst(t *testing.T) {
	noted := &debug.BuildInfo{
		Main:     debug.Module{Version: "v0.2.0"},
		Settings: []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc"}},
	}
	for name, tc := range map[string]struct {
		linked Info
		info   *debug.BuildInfo
		want   Info
	}{
		"both linked":            {Info{Version: "v0.1.0", Commit: "def"}, noted, Info{Version: "v0.1.0", Commit: "def"}},
		"only in the build info": {Info{Version: "dev"}, noted, Info{Version: "v0.2.0", Commit: "abc"}},
		"nothing, in a module":   {Info{Version: "dev"}, &debug.BuildInfo{}, Info{Version: "dev"}},
		"nothing, built in a clone": {
			Info{Version: "dev"}, &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, Info{Version: "dev"},
		},
		"a linked version, no commit": {Info{Version: "v0.1.0"}, noted, Info{Version: "v0.1.0", Commit: "abc"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.linked
			got.complete(tc.info)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestTheDocumentShowsWhatIsPrinted(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/image.md")
	require.NoError(t, err)
	shown := Info{
		Version: "v0.1.0", Commit: "0123456789abcdef0123456789abcdef01234567", Go: "go1.26.8", Platform: "linux/amd64",
		Liqo: "v1.2.0", LiqoV0: "v0.9.4", Kubernetes: "v1.35.2",
	}
	var printed strings.Builder
	require.NoError(t, shown.print(&printed, "text"))
	require.Contains(t, string(text), "$ liqo-broker-vk version\n"+printed.String()+"```")
	for _, role := range []string{"broker", "virtual-kubelet"} {
		require.Contains(t, string(text), "\n"+shown.UserAgent(role)+"\n")
	}
}
