package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	imageutils "k8s.io/kubernetes/test/utils/image"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// conformancePackage are specs of Kubernetes' conformance suite, by regular expressions on their names.
type conformancePackage struct {
	name, focus, skip string
	// hosts has the containers run, as processes of the providers' host nodes. KWOK simulates them otherwise.
	hosts bool
}

// conformance are the specs that make sense on a virtual node.
var conformance = []conformancePackage{
	{
		name: "kubernetes",
		focus: `(\[sig-node\] Pods|\[sig-apps\] (Deployment|ReplicaSet|StatefulSet|DisruptionController)) .*\[Conformance\]` +
			`|\[sig-apps\] Job should (delete a job|apply changes to a job status|adopt matching orphans) .*\[Conformance\]`,
		// Those that need containers that run: KWOK pulls no image, and runs neither probes nor commands.
		skip: `activeDeadlineSeconds|environment variables for services|logs from the container over websockets` +
			`|serve a basic image|proportional scaling|\[Slow\]|canary updates|rolling updates and roll backs` +
			`|recreate evicted|500 podspec updates`,
	},
	{
		name: "kubernetes-run", hosts: true,
		focus: `(\[sig-node\] (Secrets|ConfigMap) |\[sig-node\] Pods should support retrieving logs|\[sig-apps\] Job ).*\[Conformance\]`,
		// Those that are in the other package, and those that need a volume on the node.
		skip: `Job should (delete a job|apply changes to a job status|adopt matching orphans|allow to use|run a job to completion)`,
	},
}

// buildConformance compiles Kubernetes' e2e.test, unless the cache has it, with the versions of this module, whose go.sum has not all
// that it needs. It returns the program.
func buildConformance(ctx context.Context, say func(string, ...any)) (string, error) {
	cache, err := sandbox.CacheDir()
	if err != nil {
		return "", err
	}
	version, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return "", fmt.Errorf("the version of Kubernetes: %w", err)
	}
	directory := filepath.Join(cache, "suites", "kubernetes-"+strings.TrimSpace(string(version)))
	program := filepath.Join(directory, "e2e.test")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	say("building Kubernetes' e2e.test (kept in %s)", directory)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return "", err
	}
	for _, extension := range []string{"mod", "sum"} {
		text, err := os.ReadFile("go." + extension)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(directory, "e2e."+extension), text, 0o644); err != nil {
			return "", err
		}
	}
	c := exec.CommandContext(ctx, "go", "test", "-c", "-mod=mod", "-modfile="+filepath.Join(directory, "e2e.mod"),
		"-ldflags=-s -w", "-o", program, "k8s.io/kubernetes/test/e2e")
	if printed, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", c, err, printed)
	}
	return program, nil
}

// runConformance runs specs of Kubernetes' conformance suite in namespaces whose pods all go to virtual nodes. A failed spec is no
// error.
func (at place) runConformance(ctx context.Context, program string, p conformancePackage) (outcomes []outcome, err error) {
	cluster := at.Cluster(sandbox.Broker)
	api, err := apiOf(cluster)
	if err != nil {
		return nil, err
	}
	api.namespace = cluster.Offload
	if p.hosts {
		defer func() { err = errors.Join(err, at.useHosts(context.WithoutCancel(ctx), false)) }()
		if err := at.useHosts(ctx, true); err != nil {
			return nil, err
		}
	}
	kubeconfig, closed, err := api.serve()
	if err != nil {
		return nil, err
	}
	defer closed()
	c := at.command(ctx, program, "--ginkgo.focus="+p.focus, "--ginkgo.skip="+p.skip,
		"--kubeconfig="+kubeconfig, "--kubectl-path="+filepath.Join(at.Tools(), "kubectl"), "--provider=skeleton",
		"--kube-api-content-type=application/json", // So that the names of namespaces can be read.
		// No node is without taints, and those of virtual nodes do not keep these pods away.
		"--allowed-not-ready-nodes=-1", "--num-nodes=1",
		"--dump-logs-on-failure=false", "--disable-log-dump")
	c.Dir = filepath.Dir(kubeconfig)
	outcomes, err = at.runGinkgo(p.name, c)
	// What is not chosen is skipped, for no reason that is given.
	return slices.DeleteFunc(outcomes, func(o outcome) bool { return o.Result == skipped && o.Why == "" }), err
}

// machineImages are those of the containers that run, with their commands.
var machineImages = map[string][]string{
	imageutils.GetE2EImage(imageutils.BusyBox): {"sh"},
	imageutils.GetE2EImage(imageutils.Agnhost): {"sleep", "1000000"},
}

// useHosts has the pods of the providers go to their host nodes, or to the simulated ones again.
func (at place) useHosts(ctx context.Context, hosts bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	taint := corev1.TaintEffectNoSchedule
	if hosts {
		taint = corev1.TaintEffectPreferNoSchedule
	}
	for _, name := range []string{sandbox.Provider(1), sandbox.Provider(2)} {
		cluster := at.Cluster(name)
		for node, patch := range map[string]string{
			name + "-node":     fmt.Sprintf(`{"spec": {"unschedulable": %t}}`, hosts),
			cluster.HostNode(): fmt.Sprintf(`{"spec": {"taints": [{"key": "sandbox.liqo-broker-vk/host", "effect": %q}]}}`, taint),
		} {
			if _, err := cluster.Kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("node %s: %w", node, err)
			}
		}
	}
	return nil
}
