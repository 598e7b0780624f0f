package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/build"
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
		"an unknown resource": {"get nodes", `error: unknown resource "nodes": use providers, placements, policies or consumers`},
		"no resource":         {"get", "error: no resource: use providers, placements, policies or consumers"},
		"no provider":         {"drain", "error: name at least one provider (see 'kubectl broker drain --help')"},
		"no pod":              {"explain", "error: name one pod, not 0 (see 'kubectl broker explain --help')"},
		"watching providers":  {"get providers -w", "error: --watch is not supported: use 'kubectl get providerclusters -w'"},
		"watching consumers":  {"get ccl -w", "error: --watch is not supported: use 'kubectl get consumerclusters -w'"},
		"watching policies":   {"get pp -w", "error: --watch is not supported: use 'kubectl get placementpolicies -w'"},
		"watching placements": {
			"get placements --watch",
			"error: --watch is not supported: use 'kubectl get pods -L brokering.liqo.io/provider -w'",
		},
		"a name of another kind":   {"drain pod/p1", `error: "pod/p1" is not the name of a provider: use NAME or providercluster/NAME`},
		"a provider as a pod":      {"explain pcl/p1", `error: "pcl/p1" is not the name of a pod: use NAME or pod/NAME`},
		"a provider as a consumer": {"enable p1 --consumer pod/c", `error: --consumer: "pod/c" is not the name of a consumer`},
		"a pod as a provider":      {"get placements --provider pod/a", `error: --provider: "pod/a" is not the name of a provider`},
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

// Names of -o name are arguments of every command that takes names.
func TestNamesThatArePrintedAreAccepted(t *testing.T) {
	for line, want := range map[string]string{
		"get providers providercluster/provider1 -o name":                                  "providercluster.brokering.liqo.io/provider1\n",
		"get providers pcl/provider1 provider1 -o name":                                    "providercluster.brokering.liqo.io/provider1\n",
		"get placements -n shop-consumer1 pod/web-0 -o name":                               "pod/web-0\n",
		"get placements -A --provider providercluster.brokering.liqo.io/provider2 -o name": "pod/web-1\n",
		"get placements -A --consumer foreigncluster.core.liqo.io/consumer2 -o name":       "pod/train-0\n",
		"get consumers consumercluster/consumer1 -o name":                                  "consumercluster.brokering.liqo.io/consumer1\n",
		"get policies placementpolicy.brokering.liqo.io/cheap -o name":                     "placementpolicy.brokering.liqo.io/cheap\n",
		"cordon providercluster.brokering.liqo.io/provider1": "providercluster.brokering.liqo.io/provider1 " +
			"cordoned\n",
		"enable --consumer foreigncluster/consumer1 providercluster/provider1": "providercluster.brokering.liqo.io/provider1 " +
			"already enabled for consumer1\n",
		"drain --wait=false providercluster/provider1": "providercluster.brokering.liqo.io/provider1 draining\n",
	} {
		t.Run(line, func(t *testing.T) {
			code, output := newFederation(t).kubectlBroker(t, strings.Fields(line)...)
			require.Zero(t, code, output)
			require.Equal(t, want, output)
		})
	}
}

func TestWhyIsExplain(t *testing.T) {
	_, explained := newFederation(t).kubectlBroker(t, "explain", "-n", "shop-consumer1", "web-0")
	code, why := newFederation(t).kubectlBroker(t, "why", "-n", "shop-consumer1", "pod/web-0")
	require.Zero(t, code)
	require.Equal(t, explained, why)
}

// Every command has examples, which name the program as people type it, and exist.
func TestEveryCommandHasExamples(t *testing.T) {
	for typed, root := range map[string]*cobra.Command{
		"kubectl broker":      plugin.New(build.Of(version, commit)).Root("kubectl broker"),
		"kubectl liqo-broker": plugin.New(build.Of(version, commit)).Root("kubectl liqo-broker"),
		"liqo-broker-vk":      newRootCommand(&bytes.Buffer{}, nil),
	} {
		requireExamples(t, typed, root)
	}
}

func requireExamples(t *testing.T, typed string, cmd *cobra.Command) {
	t.Helper()
	require.NotContains(t, cmd.UsageString(), "\n      --klog.", cmd.CommandPath())
	require.NotContains(t, cmd.Example, "{}", cmd.CommandPath())
	commands := 0
	for line := range strings.Lines(cmd.Example) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, typed+" ") {
			commands++
			words := strings.Fields(strings.TrimPrefix(line, typed))
			found, _, err := cmd.Root().Find(words)
			require.NoError(t, err, line)
			if cmd.HasParent() {
				require.True(t, found == cmd || found.Parent() == cmd, line)
			}
		}
	}
	if cmd.Name() != "version" { // Its examples name the program.
		require.Positive(t, commands, "%s: %s", cmd.CommandPath(), cmd.Example)
	}
	for _, sub := range cmd.Commands() {
		requireExamples(t, typed, sub)
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
		"get consumers c":                          {"consumer1", "consumer2"},
		"get policies c":                           {"cheap"},
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
