package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// run runs the program with its own name.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return runAs(ctx, "liqo-broker-vk", args, stdout, stderr)
}

func TestFailuresAreOneLine(t *testing.T) {
	liqoEnvironment(t)
	t.Setenv("KUBECONFIG", "/does/not/exist")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, tc := range map[string]struct {
		args    []string
		message string
	}{
		"an unknown flag":           {[]string{"--nope"}, "unknown flag: --nope (see 'liqo-broker-vk --help')"},
		"an unknown flag of a role": {[]string{"broker", "--nope"}, "unknown flag: --nope (see 'liqo-broker-vk broker --help')"},
		"an argument":               {[]string{"nope"}, `unknown command "nope" for "liqo-broker-vk" (see 'liqo-broker-vk --help')`},
		"a misspelt command":        {[]string{"catalogue"}, `: did you mean catalog? (see 'liqo-broker-vk --help')`},
		"nothing":                   {nil, "see 'liqo-broker-vk --help' for the commands"},
		"a value of the wrong type": {[]string{"--listen-port=x"}, "--listen-port"},
		"a value outside its set":   {[]string{"--certificate-type=x"}, "certificate-type"},
		"options missing":           {[]string{"--create-node=false"}, "--foreign-cluster-id is empty"},
		"no cluster to reach":       {liqoArguments(), "--home-kubeconfig"},
		"a flag of a later Liqo":    {append(liqoArguments(), "--later=secret"), "--home-kubeconfig"}, // It has started.
		"that is not allowed": {
			append(liqoArguments(), "--later=secret", "--strict-flags=true"),
			"unknown flag: --later (see 'liqo-broker-vk --help')",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := exitCode(run(t.Context(), tc.args, &stdout, &stderr), &stderr)
			require.Equal(t, 1, code)
			require.Empty(t, stdout.String())

			lines := strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n")
			last := lines[len(lines)-1]
			require.Contains(t, last, "liqo-broker-vk: ")
			require.Contains(t, last, tc.message)
			for _, line := range lines[:len(lines)-1] {
				require.True(t, json.Valid([]byte(line)), "only structured log lines before it: %s", line)
			}
		})
	}
}

// Liqo's next version may start the virtual kubelet with flags that are not known yet.
func TestUnknownFlagsAreNamed(t *testing.T) {
	liqoEnvironment(t)
	t.Setenv("KUBECONFIG", "/does/not/exist")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, args := range map[string][]string{"none": liqoArguments(), "two": append(liqoArguments(), "--sooner", "--later=secret")} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.ErrorContains(t, run(t.Context(), args, &stdout, &stderr), "--home-kubeconfig")
			require.NotContains(t, stderr.String(), "secret")
			named := strings.Contains(stderr.String(), `"flags":["later","sooner"]`)
			require.Equal(t, name == "two", named, stderr.String())
		})
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Zero(t, exitCode(run(t.Context(), []string{"--help"}, &stdout, &stderr), &stderr))
	require.Contains(t, stdout.String(), "--foreign-cluster-id")
	require.Empty(t, stderr.String())
}

func TestFailuresAskForWhatIsNotInstalled(t *testing.T) {
	for name, tc := range map[string]struct {
		group string
		asks  string
	}{
		"Liqo":          {"offloading.liqo.io", ": is Liqo v1.2 installed there?"},
		"our CRDs":      {"brokering.liqo.io", ": are the CRDs of the broker installed there?"},
		"a foreign one": {"monitoring.coreos.com", `"monitoring.coreos.com/v1"`},
	} {
		t.Run(name, func(t *testing.T) {
			unknown := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: tc.group, Kind: "Thing"}, SearchedVersions: []string{"v1"}}
			lines := failure(fmt.Errorf("informer: %w", unknown))
			require.Len(t, lines, 1)
			require.Truef(t, strings.HasSuffix(lines[0], tc.asks), "%s", lines[0])
		})
	}
}

// liqoArguments are some of the arguments that liqo-controller-manager passes.
func liqoArguments() []string {
	return []string{
		"--foreign-cluster-id=p1", "--nodename=p1-node", "--node-ip=10.1.2.3", "--tenant-namespace=liqo-tenant-p1",
		"--liqo-namespace=liqo", "--home-cluster-id=home", "--foreign-kubeconfig-secret-name=kubeconfig-p1",
	}
}

func liqoEnvironment(t *testing.T) {
	t.Helper()
	t.Setenv("POD_NAME", "vk-p1-node-xyz")
	t.Setenv("POD_NAMESPACE", "liqo-tenant-p1")
	t.Setenv("VIRTUALNODE_NAME", "p1-node")
}
