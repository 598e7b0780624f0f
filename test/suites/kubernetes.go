package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	imageutils "k8s.io/kubernetes/test/utils/image"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// conformancePackage selects specs of Kubernetes' conformance suite by regular expressions for their names.
type conformancePackage struct {
	name, focus, skip string
	// hosts is true if the containers run, as processes on the providers' host nodes. Otherwise KWOK simulates them.
	hosts bool
	// containers is true if the package is for federations with real containers.
	containers bool
	// timeout is packageTimeout by default.
	timeout time.Duration
}

func (p conformancePackage) limit() time.Duration { return cmp.Or(p.timeout, packageTimeout) }

// conformance has the specs that make sense on a virtual node.
var conformance = []conformancePackage{
	{
		name: "kubernetes",
		focus: `(\[sig-node\] Pods|\[sig-apps\] (Deployment|ReplicaSet|StatefulSet|DisruptionController)) .*\[Conformance\]` +
			`|\[sig-apps\] Job should (delete a job|apply changes to a job status|adopt matching orphans) .*\[Conformance\]`,
		// Specs that need running containers: KWOK pulls no images, and runs neither probes nor commands.
		skip: `activeDeadlineSeconds|environment variables for services|logs from the container over websockets` +
			`|serve a basic image|proportional scaling|\[Slow\]|canary updates|rolling updates and roll backs` +
			`|recreate evicted|500 podspec updates`,
	},
	{
		name: "kubernetes-run", hosts: true,
		focus: `(\[sig-node\] (Secrets|ConfigMap) |\[sig-node\] Pods should support retrieving logs|\[sig-apps\] Job ).*\[Conformance\]`,
		// Specs that are in the other package, and specs that need a volume on the node.
		skip: `Job should (delete a job|apply changes to a job status|adopt matching orphans|allow to use|run a job to completion)`,
	},
	{
		name: realPods, containers: true, timeout: 2 * time.Hour,
		focus: `\[sig-(node|apps|storage)\].*\[Conformance\]`,
		skip: `\[(Serial|Disruptive|Slow)\]` +
			// Specs about nodes and other objects than pods, or about pods that name an ordinary node.
			`|DaemonSet|ControllerRevision|RuntimeClass|PodTemplates|Lease lease API|Node Lifecycle|DRA|CronJob|Sysctls|CSI|StorageClass` +
			`|PersistentVolumes|VolumeAttachment|VolumeAttributesClass|ReplicationController|500 podspec updates` +
			`|Job should allow to use|[Rr]ecreate evicted` +
			// Each of these waits for five minutes for a resize, which no virtual kubelet forwards.
			`|InPlace Resize` +
			// Specs that watch for four minutes that nothing happens.
			`|Probing.*\*not\*` +
			// Specs that need curl, certificates, an image of their own, or a way from the cluster's API server to the pod.
			`|lifecycle hook|nonewprivs|AllowPrivilegeEscalation|PreStop should call prestop` +
			`|StatefulSetBasic\] should (perform|scal|Scal|burst|Burst)`,
	},
}

// buildConformance compiles Kubernetes' e2e.test, unless it is in the cache, with the versions of this module. This
// module's go.sum lacks some of its dependencies. It returns the path of the program.
func buildConformance(ctx context.Context, say func(string, ...any)) (string, error) {
	cache, err := sandbox.CacheDir()
	if err != nil {
		return "", err
	}
	version, err := module(ctx, "Version", "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	directory := filepath.Join(cache, "suites", "kubernetes-"+version)
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

// runConformance runs specs of Kubernetes' conformance suite in namespaces whose pods all run on virtual nodes. A
// failed spec is not an error.
func (at place) runConformance(ctx context.Context, program string, p conformancePackage) (outcomes []outcome, err error) {
	cluster := at.Cluster(sandbox.Broker)
	api, err := apiOf(cluster)
	if err != nil {
		return nil, err
	}
	api.namespace = cluster.Offload
	if p.containers {
		api.kubelet = nil
	}
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
		// All nodes have taints, but the taints of virtual nodes do not affect these pods.
		"--allowed-not-ready-nodes=-1", "--num-nodes=1",
		"--dump-logs-on-failure=false", "--disable-log-dump")
	c.Dir = filepath.Dir(kubeconfig)
	outcomes, err = at.runGinkgo(p.name, p.limit(), c)
	// Specs that are not selected are skipped without a reason.
	return slices.DeleteFunc(outcomes, func(o outcome) bool { return o.Result == skipped && o.Why == "" }), err
}

// buildAgnhost compiles the program of Kubernetes' image agnhost, unless it is in the cache, and returns its path.
func buildAgnhost(ctx context.Context, e2e string, say func(string, ...any)) (string, error) {
	directory := filepath.Dir(e2e)
	program := filepath.Join(directory, "agnhost")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	say("building agnhost (kept in %s)", directory)
	c := exec.CommandContext(ctx, "go", "build", "-mod=mod", "-modfile="+filepath.Join(directory, "e2e.mod"),
		"-ldflags=-s -w", "-o", program, "k8s.io/kubernetes/test/images/agnhost")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if printed, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", c, err, printed)
	}
	return program, nil
}

// containerImages returns images by the names of the suite's images, which have more programs beside agnhost and busybox,
// and another web server. source is the directory of Kubernetes' module.
func containerImages(agnhost, source string) map[string]sandbox.ContainerImage {
	files := map[string]string{}
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		files[name] = filepath.Join(source, "test/images/agnhost/porter", name)
	}
	web := sandbox.ContainerImage{Binary: agnhost, Entrypoint: []string{"/agnhost", "netexec", "--http-port=80"}}
	tools := sandbox.ContainerImage{
		Binary: agnhost, Links: []string{"agnhost-2"}, Files: files,
		Entrypoint: []string{"/agnhost"}, Arguments: []string{"pause"},
	}
	images := map[string]sandbox.ContainerImage{
		imageutils.GetE2EImage(imageutils.Agnhost): tools, imageutils.GetE2EImage(imageutils.AgnhostPrev): tools,
		imageutils.GetE2EImage(imageutils.BusyBox): {Arguments: []string{"sh"}},
		imageutils.GetPauseImageName():             {Binary: agnhost, Entrypoint: []string{"/agnhost", "pause"}},
	}
	images[imageutils.GetE2EImage(imageutils.Nginx)] = web
	return images
}

// machineImages are the images whose containers run, with their commands.
var machineImages = map[string][]string{
	imageutils.GetE2EImage(imageutils.BusyBox): {"sh"},
	imageutils.GetE2EImage(imageutils.Agnhost): {"sleep", "1000000"},
}

// useHosts schedules the pods of the providers to their host nodes, or to the simulated nodes again.
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
			_, err := cluster.Kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			if err != nil {
				return fmt.Errorf("node %s: %w", node, err)
			}
		}
	}
	return nil
}
