// Package kwok runs KWOK (https://kwok.sigs.k8s.io) for a cluster: nodes that
// are objects only, whose pods become Running, with simulated logs and exec.
package kwok

import (
	"context"
	_ "embed" // The stages.
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/controlplane"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

const annotation = "kwok.x-k8s.io/node"

// LogLine is the first line of every pod's log.
const LogLine = "hello from a simulated container"

// Config describes the simulation.
type Config struct {
	Cluster *controlplane.Cluster
	Name    string
	Binary  string
	// Dir holds KWOK's files and its log.
	Dir string
	// PodCIDR is the range of pod addresses, written as an address of the node with the range's prefix length, for
	// example 10.244.1.1/24.
	PodCIDR string
	// Port that KWOK's kubelet API listens on.
	Port int
	// ForwardPort is the port on 127.0.0.1 to which all forwarded ports of pods lead.
	ForwardPort int
	Group       *proc.Group
}

// Start runs KWOK. It has no nodes to simulate before AddNode.
func Start(ctx context.Context, cfg Config) (*proc.Process, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	cert, err := cfg.Cluster.NewServingCert("kwok", "127.0.0.1")
	if err != nil {
		return nil, err
	}
	file := func(name string) string { return filepath.Join(cfg.Dir, name) }
	for name, data := range map[string][]byte{
		"tls.crt": cert.Cert, "tls.key": cert.Key,
		"config.yaml": append(fmt.Appendf(nil, config, file("pod.log"), file("pod.log"), cfg.ForwardPort), stages...),
	} {
		if err := os.WriteFile(file(name), data, 0o600); err != nil {
			return nil, err
		}
	}
	if err := AppendLog(cfg.Dir, LogLine); err != nil {
		return nil, err
	}
	return cfg.Group.Start(proc.Spec{
		Name: cfg.Name + "/kwok",
		Path: cfg.Binary,
		Args: []string{
			"--kubeconfig=" + cfg.Cluster.Kubeconfig(), "--config=" + file("config.yaml"),
			"--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=" + annotation + "=fake",
			"--cidr=" + cfg.PodCIDR, "--node-ip=127.0.0.1", fmt.Sprintf("--node-port=%d", cfg.Port),
			fmt.Sprintf("--server-address=127.0.0.1:%d", cfg.Port), "--node-lease-duration-seconds=40",
			"--tls-cert-file=" + file("tls.crt"), "--tls-private-key-file=" + file("tls.key"),
		},
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cfg.Dir},
		Log: file("kwok.log"),
	})
}

// AppendLog adds a line to the log that all pods share, in the format of CRI.
func AppendLog(dir, line string) error {
	f, err := os.OpenFile(filepath.Join(dir, "pod.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s stdout F %s\n", time.Now().UTC().Format(time.RFC3339Nano), line)
	return err
}

// stages are the changes that KWOK makes to pods, instead of its own stages.
//
//go:embed stages.yaml
var stages []byte

// config answers logs and attach from a file, runs exec on this machine, and forwards every port to one port on
// loopback.
const config = `apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: all}
spec: {logs: [{logsFile: %q, follow: true}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterAttach
metadata: {name: all}
spec: {attaches: [{logsFile: %q}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata: {name: all}
spec: {execs: [{local: {}}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterPortForward
metadata: {name: all}
spec: {forwards: [{target: {address: 127.0.0.1, port: %d}}]}
---
`

// AddNode creates a simulated node with the given capacity and additional labels.
func AddNode(ctx context.Context, client kubernetes.Interface, name string, capacity corev1.ResourceList, labels map[string]string) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{annotation: "fake"},
			Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", "type": "kwok",
			},
		},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
	maps.Copy(node.Labels, labels)
	_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	return err
}
