package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/plugin"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubectl/check"
)

func TestFailuresForPeopleAreThoseOfKubectl(t *testing.T) {
	for name, tc := range map[string]struct {
		args    string
		message string
	}{
		"an unknown command":  {"nope", `error: unknown command "nope" for "kubectl broker" (see 'kubectl broker --help')`},
		"a misspelt command":  {"drian provider1", `: did you mean drain? (see 'kubectl broker --help')`},
		"an unknown flag":     {"get providers --nope", "error: unknown flag: --nope (see 'kubectl broker get providers --help')"},
		"an unknown resource": {"get nodes", `error: unknown resource "nodes": use providers or placements`},
		"no resource":         {"get", "error: no resource: use providers or placements"},
		"no provider":         {"drain", "error: name at least one provider (see 'kubectl broker drain --help')"},
		"no pod":              {"explain", "error: name one pod, not 0 (see 'kubectl broker explain --help')"},
		"watching providers":  {"get providers -w", "error: --watch is not supported: use 'kubectl get providerclusters -w'"},
		"watching placements": {
			"get placements --watch",
			"error: --watch is not supported: use 'kubectl get pods -L brokering.liqo.io/provider -w'",
		},
		"a bad selector":           {"get providers -l a===b", "error: --selector=a===b: "},
		"a bad output":             {"get providers -o xml", "error: --output=xml: use one of json, name, wide, yaml"},
		"a bad output, explaining": {"explain p -o name", "error: --output=name: use one of json, table, wide, yaml"},
		"a bad duration":           {"drain provider1 --timeout=5", `error: invalid argument "5" for "--timeout" flag: `},
		"a bad output, checking":   {"check -o name", "error: --output=name: use one of json, table, yaml"},
		"no such provider": {
			"drain provider9",
			`Error from server (NotFound): providerclusters.brokering.liqo.io "provider9" not found`,
		},
		"no such pod": {"explain -n shop-consumer1 no", `Error from server (NotFound): pods "no" not found`},
		"no such consumer": {
			"enable provider1 --consumer consumer9",
			`Error from server (NotFound): consumer consumer9: foreignclusters.core.liqo.io "consumer9" not found`,
		},
		"no such node": {
			"explain -n shop-consumer1 web-0 --broker-node=n",
			`error: pod shop-consumer1/web-0 is not bound to node n (--broker-node) but to "liqo-broker"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, output := newFederation(t).kubectlBroker(t, strings.Fields(tc.args)...)
			require.Equal(t, 1, code)
			require.Contains(t, output, tc.message)
			require.Equal(t, 1, strings.Count(output, "\n"), output)
		})
	}
}

func TestTheNameOfTheProgramSelectsItsRole(t *testing.T) {
	for program, tc := range map[string]struct {
		args []string
		want string
		not  string
	}{
		"/usr/bin/virtual-kubelet":               {[]string{"--help"}, "--foreign-cluster-id", "kubectl broker"},
		"liqo-broker-vk":                         {[]string{"get", "--help"}, "liqo-broker-vk get", "kubectl broker"},
		"/home/me/.krew/bin/kubectl-broker":      {[]string{"--help"}, "kubectl broker [command]", "--foreign-cluster-id"},
		"kubectl-broker.exe":                     {[]string{"drain", "--help"}, "kubectl broker drain PROVIDER...", "liqo-broker-vk drain"},
		"kubectl-broker":                         {[]string{"version"}, "liqo-broker-vk dev", ""},
		"/usr/local/bin/kubectl_complete-broker": {[]string{"unco"}, "uncordon\tEnd a cordon or a drain", "drain\tMove"},
		"/home/me/.krew/bin/kubectl-liqo_broker": {[]string{"drain", "--help"}, "kubectl liqo-broker drain PROVIDER", "kubectl broker"},
		"kubectl_complete-liqo_broker":           {[]string{"unco"}, "uncordon\tEnd a cordon or a drain", "drain\tMove"},
	} {
		t.Run(program, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.NoError(t, runAs(t.Context(), program, tc.args, &stdout, &stderr))
			require.Contains(t, stdout.String(), tc.want)
			if tc.not != "" {
				require.NotContains(t, stdout.String(), tc.not)
			}
		})
	}
}

// The plugin does not have the roles that run as servers.
func TestThePluginHasTheCommandsForPeopleOnly(t *testing.T) {
	_, help := newFederation(t).kubectlBroker(t)
	_, commands, _ := strings.Cut(help, "Available Commands:\n")
	commands, _, _ = strings.Cut(commands, "\n\n")
	var names []string
	for line := range strings.Lines(commands) {
		names = append(names, strings.Fields(line)[0])
	}
	require.Equal(t, []string{
		"check", "completion", "cordon", "disable", "drain", "enable", "explain", "get", "help", "uncordon", "version",
	}, names)
	code, _ := newFederation(t).kubectlBroker(t, "--foreign-cluster-id=x")
	require.Equal(t, 1, code)
}

func TestCompletion(t *testing.T) {
	kubeconfig := writeKubeconfig(t, "http://127.0.0.1:1")
	for line, want := range map[string][]string{
		"get pr":                                   {"providers"},
		"get providers ":                           {"provider1", "provider2", "provider3"},
		"get pcl ":                                 {"provider1", "provider2", "provider3"},
		"drain provider1 ":                         {"provider2", "provider3"},
		"enable x":                                 nil,
		"enable provider1 --consumer ":             {"consumer1", "consumer2"},
		"get placements -n shop-consumer1 ":        {"db-0", "web-0", "web-1"},
		"get placements -n shop-consumer1 w":       {"web-0", "web-1"},
		"get placements -n shop-consumer1 web-0 w": {"web-1"},
		"get placements --provider provider2":      {"provider2"},
		"get placements -n ": {
			"default", "lab-consumer2", "liqo-broker", "liqo-tenant-provider1", "liqo-tenant-provider2", "liqo-tenant-provider3",
			"shop-consumer1",
		},
		"explain -n shop-consumer1 ":                 {"db-0", "web-0", "web-1"},
		"explain -n shop-consumer1 web-0 ":           nil,
		"explain --broker-node=other -n shop-consu ": nil,
		"get -o ":       {"json", "name", "wide", "yaml"},
		"explain x -o ": {"json", "table", "wide", "yaml"},
		"check -o ":     {"json", "table", "yaml"},
		"check ":        nil,
		"cordon --kubeconfig " + kubeconfig + " --context ":         {"one", "two"},
		"cordon --kubeconfig " + kubeconfig + " --user ":            {"me"},
		"get providers --kubeconfig " + kubeconfig + " --cluster c": {"c"},
	} {
		t.Run(line, func(t *testing.T) {
			args := append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(line, " ")...)
			code, out := newFederation(t).kubectlBroker(t, args...)
			require.Zero(t, code)
			suggested, directive, _ := strings.Cut(out, ":")
			require.Equal(t, want, append([]string(nil), strings.Fields(suggested)...))
			require.True(t, strings.HasPrefix(directive, "4\n"), "no files: %s", out)
		})
	}
}

func TestCompletionWithoutAClusterPrintsNothing(t *testing.T) {
	t.Setenv("KUBECONFIG", "/does/not/exist")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	var stdout, stderr bytes.Buffer
	require.NoError(t, runAs(t.Context(), plugin.Name, []string{cobra.ShellCompNoDescRequestCmd, "drain", ""}, &stdout, &stderr))
	require.Equal(t, ":4\n", stdout.String())
}

func TestEveryShellHasAScript(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		var stdout, stderr bytes.Buffer
		require.NoError(t, run(t.Context(), []string{"completion", shell}, &stdout, &stderr))
		require.Contains(t, stdout.String(), "liqo-broker-vk")
		require.Empty(t, stderr.String())
	}
}

// Liqo starts the virtual kubelet, which must not accept the flags of the plugin's commands.
func TestTheVirtualKubeletHasNoFlagOfPeople(t *testing.T) {
	root := newRootCommand(&bytes.Buffer{}, nil)
	for _, flag := range []string{"kubeconfig", "context", "namespace", "token", "output"} {
		require.Nil(t, root.Flags().Lookup(flag), flag)
		require.Nil(t, root.PersistentFlags().Lookup(flag), flag)
	}
}

// A check that fails prints its report, and the exit code is 1.
func TestCheck(t *testing.T) {
	code, output := newFederation(t).kubectlBroker(t, "check")
	require.Equal(t, 1, code)
	require.True(t, strings.HasSuffix(output, "\n20 OK, 1 WARN, 2 FAIL\nerror: 2 of 23 checks failed\n"), output)
	require.Contains(t, output, "→ kubectl apply --server-side --force-conflicts -f deploy/guard.yaml\n")

	_, output = newFederation(t).kubectlBroker(t, "check", "--broker-node=other")
	require.Contains(t, output, "→ kubectl broker check --broker-node=liqo-broker\n")

	code, output = newFederation(t).kubectlBroker(t, "check", "-o", "json")
	require.Equal(t, 1, code)
	var report check.Report
	require.NoError(t, json.NewDecoder(strings.NewReader(output)).Decode(&report))
	require.Equal(t, check.Fail, report.State)
	require.Len(t, report.Checks, 23)
}

func TestACheckWithoutFailures(t *testing.T) {
	f := newFederation(t)
	guard := &admissionv1.ValidatingAdmissionPolicy{}
	guard.Name = "liqo-broker-exposure"
	require.NoError(t, f.client.Create(t.Context(), guard))
	provider := f.provider("provider3", "16", "", "", "0", 0)
	require.NoError(t, f.client.Delete(t.Context(), provider))
	code, output := f.kubectlBroker(t, "check")
	require.Zero(t, code, "a warning is no failure")
	require.True(t, strings.HasSuffix(output, "\n21 OK, 1 WARN, 0 FAIL\n"), output)
}
