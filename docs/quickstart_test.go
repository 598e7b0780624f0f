package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// program stands for kubectl, helm and liqoctl: it records its arguments, and answers reads as clusters with Liqo do. The
// environment variable ANSWERS has lines "PATTERN=ANSWER" that come first; the answer FAIL is an error.
const program = `#!/bin/bash
line="${0##*/} $*"
printf '%s\n' "$line" >> "$CALLS"
while IFS= read -r answer; do
  [ -n "$answer" ] || continue
  if [[ $line =~ ${answer%%=>*} ]]; then
    [ "${answer#*=>}" = FAIL ] && exit 1
    printf '%s' "${answer#*=>}"
    exit 0
  fi
done <<< "$ANSWERS"
cluster=${2##*/} cluster=${cluster%.yaml}
case $line in
  *'clusterid-configmap'*) printf '%s' "$cluster" ;;
  *'auth can-i'*) echo yes ;;
  *'{.spec.createNode}') printf true ;;
  *'.spec.containerImage}') printf ghcr.io/liqotech/virtual-kubelet:v1.2.0 ;;
  *'{.spec.extraArgs}') printf '["--enable-apiserver-support=true","--certificate-type=aws"]' ;;
  *'range .spec.extraArgs'*) printf -- '--enable-apiserver-support=true\n--certificate-type=aws\n' ;;
  *"loadBalancer.ingress[0]"*) printf 192.0.2.1 ;;
  *'get namespace '* | *'get providercluster '* | *'get clusterrolebinding '* | *'get node '*) exit 1 ;;
esac
exit 0
`

// quickStart runs quickstart.sh, and returns its output, the calls that change something, and whether it failed.
func quickStart(t *testing.T, answers string, arguments ...string) (output string, changes []string, failed bool) {
	t.Helper()
	directory := t.TempDir()
	for _, name := range []string{"kubectl", "helm", "liqoctl"} {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), []byte(program), 0o755))
	}
	for _, name := range []string{"b", "p1", "p2", "c"} {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name+".yaml"), nil, 0o600))
	}
	script, err := filepath.Abs("../quickstart.sh")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{script}, arguments...)...)
	cmd.Dir = directory // The paths of kubeconfigs are relative to it.
	calls := filepath.Join(directory, "calls")
	cmd.Env = []string{"PATH=" + directory + ":" + os.Getenv("PATH"), "CALLS=" + calls, "ANSWERS=" + answers}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	failed = cmd.Run() != nil
	text, _ := os.ReadFile(calls)
	reads := regexp.MustCompile(` (get|auth can-i|list) | wait | rollout status `)
	for line := range strings.Lines(string(text)) {
		line = strings.ReplaceAll(strings.TrimSpace(line), directory+"/", "")
		if !reads.MatchString(strings.SplitN(line, " -p ", 2)[0] + " ") {
			changes = append(changes, line)
		}
	}
	return strings.ReplaceAll(out.String(), directory+"/", ""), changes, failed
}

// all are the arguments of an installation with two providers.
func all(more ...string) []string {
	return append([]string{"--broker", "b.yaml", "--provider", "p1.yaml", "p2.yaml", "--consumer", "c.yaml"}, more...)
}

// image has the image as two arguments.
func image() []string { return []string{"--image", "r.example.com:5000/x/liqo-broker-vk:v0.2.0"} }

func TestQuickStart(t *testing.T) {
	output, changes, failed := quickStart(t, "", all(append(image(), "--yes")...)...)
	require.False(t, failed, output)
	const before = "quickstart.brokering.liqo.io/before"
	const previous = before + `={"spec":{"createNode":true,"containerImage":"ghcr.io/liqotech/virtual-kubelet:v1.2.0",` +
		`"extraArgs":["--enable-apiserver-support=true","--certificate-type=aws"]}}`
	const resources = "--cpu 16 --memory 64Gi --pods 100"
	require.Equal(t, []string{
		"kubectl --kubeconfig b.yaml create namespace liqo-broker",
		"kubectl --kubeconfig b.yaml label namespace liqo-broker pod-security.kubernetes.io/enforce=restricted --overwrite",
		"helm --kubeconfig b.yaml upgrade --install liqo-broker deploy/chart/liqo-broker-vk -n liqo-broker " +
			"--set networkManager.service.type=LoadBalancer --set image.repository=r.example.com:5000/x/liqo-broker-vk " +
			"--set image.tag=v0.2.0",
		"kubectl --kubeconfig b.yaml -n liqo annotate vkoptionstemplate/virtual-kubelet-default " + previous,
		"kubectl --kubeconfig b.yaml -n liqo patch vkoptionstemplate/virtual-kubelet-default --type=merge -p " +
			`{"spec":{"createNode":false,"containerImage":"r.example.com:5000/x/liqo-broker-vk:v0.2.0",` +
			`"extraArgs":["--broker-node=liqo-broker","--enable-apiserver-support=false","--certificate-type=aws"]}}`,
		"liqoctl peer --kubeconfig b.yaml --remote-kubeconfig p1.yaml --gw-server-service-type LoadBalancer " + resources,
		"liqoctl peer --kubeconfig b.yaml --remote-kubeconfig p2.yaml --gw-server-service-type LoadBalancer " + resources,
		"kubectl --kubeconfig c.yaml -n liqo annotate vkoptionstemplate/virtual-kubelet-default " + previous,
		"kubectl --kubeconfig c.yaml -n liqo patch vkoptionstemplate/virtual-kubelet-default --type=merge -p " +
			`{"spec":{"containerImage":"r.example.com:5000/x/liqo-broker-vk:v0.2.0","extraArgs":["--enable-apiserver-support=true",` +
			`"--direct-traffic=true","--remote-ipam=server=192.0.2.1","--certificate-type=aws"]}}`,
		"kubectl --kubeconfig c.yaml apply -f deploy/virtual-kubelet-auth.yaml -f deploy/virtual-kubelet-addresses.yaml",
		"kubectl --kubeconfig c.yaml create clusterrolebinding liqo-broker-vk-kubelet-auth-liqo-tenant-b-b " +
			"--clusterrole=liqo-broker-vk-kubelet-auth --serviceaccount=liqo-tenant-b:b",
		"kubectl --kubeconfig c.yaml create clusterrolebinding liqo-broker-vk-addresses-liqo-tenant-b-b " +
			"--clusterrole=liqo-broker-vk-addresses --serviceaccount=liqo-tenant-b:b",
		"liqoctl peer --kubeconfig c.yaml --remote-kubeconfig b.yaml --gw-server-service-type LoadBalancer --resource-slice-class broker " +
			resources,
		"kubectl --kubeconfig c.yaml create namespace liqo-broker-quickstart",
		"liqoctl offload namespace liqo-broker-quickstart --kubeconfig c.yaml --pod-offloading-strategy Remote",
		"kubectl --kubeconfig c.yaml -n liqo-broker-quickstart create deployment web --image=nginx --replicas=3",
	}, changes)
	require.Contains(t, output, "https://127.0.0.1:8000/")
	for _, file := range []string{
		"deploy/chart/liqo-broker-vk", "deploy/virtual-kubelet-auth.yaml", "deploy/virtual-kubelet-addresses.yaml",
	} {
		_, err := os.Stat(filepath.Join("..", file))
		require.NoError(t, err)
	}
}

func TestQuickStartOverIPv6(t *testing.T) {
	_, changes, _ := quickStart(t, `ingress\[0\]=>2001:db8::1`, all(append(image(), "--yes")...)...)
	require.Contains(t, strings.Join(changes, "\n"), `"--remote-ipam=server=[2001:db8::1]"`)
}

func TestQuickStartWithNodePorts(t *testing.T) {
	answers := "InternalIP=>10.0.0.7 fd00::7\nspec.ports=>30600"
	_, changes, _ := quickStart(t, answers, all(append(image(), "--yes", "--service-type", "NodePort")...)...)
	text := strings.Join(changes, "\n")
	require.Contains(t, text, `"--remote-ipam=server=10.0.0.7:30600"`)
	require.Equal(t, 3, strings.Count(text, "--gw-server-service-type NodePort"))
	require.Contains(t, text, "networkManager.service.type=NodePort")
}

// A second run changes no peering, and does not keep its own options as the previous ones.
func TestQuickStartTwice(t *testing.T) {
	answers := `get (namespace|providercluster|clusterrolebinding|node) =>x` + "\n" + `annotations=>{"spec":{}}`
	output, changes, failed := quickStart(t, answers, all(append(image(), "--yes")...)...)
	require.False(t, failed, output)
	text := strings.Join(changes, "\n")
	for _, not := range []string{" annotate ", "liqoctl", " create "} {
		require.NotContains(t, text, not)
	}
}

// Nothing is changed without consent, by --dry-run, or if a check fails.
func TestQuickStartThatChangesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		answers   string
		arguments []string
		message   string
		fails     bool
	}{
		"without consent": {"", all(image()...), "nothing was changed", true},
		"a dry run":       {"", all(append(image(), "--dry-run")...), "+ liqoctl peer --kubeconfig b.yaml", false},
		"a dry run of the removal": {
			"annotations=>{}\nlist -n=>liqo-broker", all("--remove", "--dry-run"),
			"+ helm --kubeconfig b.yaml uninstall liqo-broker", false,
		},
		"no broker":        {"", []string{"--provider", "p1.yaml", "--consumer", "c.yaml"}, "--broker is missing", true},
		"no provider":      {"", []string{"--broker", "b.yaml", "--consumer", "c.yaml"}, "--provider is missing", true},
		"no consumer":      {"", []string{"--broker", "b.yaml", "--provider", "p1.yaml"}, "--consumer is missing", true},
		"no value":         {"", []string{"--broker"}, "--broker needs a value", true},
		"no kubeconfig":    {"", []string{"--provider"}, "--provider needs a kubeconfig", true},
		"an unknown flag":  {"", []string{"--nope"}, "unknown argument --nope", true},
		"no image":         {"", all("--yes"), "--image=: give the name of the image with a tag", true},
		"no tag":           {"", all("--yes", "--image", "r:5000/x"), "--image=r:5000/x: give the name", true},
		"a digest":         {"", all("--yes", "--image", "r/x@sha256:0"), "--image=r/x@sha256:0: give the name", true},
		"another type":     {"", all("--service-type", "ClusterIP"), "--service-type=ClusterIP: use LoadBalancer or NodePort", true},
		"no file":          {"", all("--broker", "no.yaml", "--image", "r/x:1"), "no.yaml: the file cannot be read", true},
		"no answer":        {"c.yaml get --raw /readyz=>FAIL", all(image()...), "--consumer c.yaml: its API server does not answer", true},
		"no Liqo":          {"p2.yaml -n liqo get deployment=>FAIL", all(image()...), "p2.yaml: Liqo is not installed there", true},
		"no rights":        {"b.yaml auth can-i=>no", all(image()...), "--broker b.yaml: this identity may not do everything", true},
		"no id":            {"p1.yaml get configmaps=>", all(image()...), "--provider p1.yaml: Liqo has no cluster id there", true},
		"one id for two":   {"p2.yaml get configmaps=>p1", all(image()...), "p2.yaml: the cluster id p1 is another cluster's", true},
		"an old cluster":   {"get validatingadmissionpolicies=>FAIL", all(image()...), "upgrade Kubernetes to 1.30", true},
		"another broker":   {"get deployments -A=>other", all(image()...), "another broker is installed in the namespace other", true},
		"existing peering": {"get virtualnodes=>true", all(image()...), "1 VirtualNodes have a Node of their own", true},
	} {
		t.Run(name, func(t *testing.T) {
			output, changes, failed := quickStart(t, tc.answers, tc.arguments...)
			require.Equal(t, tc.fails, failed, output)
			require.Contains(t, output, tc.message)
			require.Empty(t, changes)
		})
	}
}

func TestQuickStartIsRemoved(t *testing.T) {
	answers := `annotations=>{"spec":{"createNode":true}}` + "\nlist -n=>liqo-broker\nget (namespace|foreigncluster) =>x"
	output, changes, failed := quickStart(t, answers, all("--remove", "--yes")...)
	require.False(t, failed, output)
	require.Equal(t, []string{
		"liqoctl unoffload namespace liqo-broker-quickstart --kubeconfig c.yaml --skip-confirm",
		"kubectl --kubeconfig c.yaml delete namespace liqo-broker-quickstart",
		"liqoctl unpeer --kubeconfig c.yaml --remote-kubeconfig b.yaml --skip-confirm",
		"kubectl --kubeconfig c.yaml delete clusterrolebinding liqo-broker-vk-kubelet-auth-liqo-tenant-b-b --ignore-not-found",
		"kubectl --kubeconfig c.yaml delete clusterrolebinding liqo-broker-vk-addresses-liqo-tenant-b-b --ignore-not-found",
		`kubectl --kubeconfig c.yaml -n liqo patch vkoptionstemplate/virtual-kubelet-default --type=merge -p {"spec":{"createNode":true}}`,
		"kubectl --kubeconfig c.yaml -n liqo annotate vkoptionstemplate/virtual-kubelet-default quickstart.brokering.liqo.io/before-",
		"liqoctl unpeer --kubeconfig b.yaml --remote-kubeconfig p1.yaml --skip-confirm",
		"liqoctl unpeer --kubeconfig b.yaml --remote-kubeconfig p2.yaml --skip-confirm",
		"helm --kubeconfig b.yaml uninstall liqo-broker -n liqo-broker",
		`kubectl --kubeconfig b.yaml -n liqo patch vkoptionstemplate/virtual-kubelet-default --type=merge -p {"spec":{"createNode":true}}`,
		"kubectl --kubeconfig b.yaml -n liqo annotate vkoptionstemplate/virtual-kubelet-default quickstart.brokering.liqo.io/before-",
		"kubectl --kubeconfig b.yaml delete namespace liqo-broker --ignore-not-found",
	}, changes)

	_, changes, failed = quickStart(t, "get foreigncluster =>FAIL", all("--remove", "--yes")...)
	require.False(t, failed, "it can be removed twice")
	require.NotContains(t, strings.Join(changes, "\n"), "liqoctl")
}
