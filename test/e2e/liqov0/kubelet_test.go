// Package liqov0 tests the virtual kubelet of Liqo v0.x on a real API server, with the CRDs of Liqo v0.9.4. One cluster
// is the consumer and the remote cluster; the test does what Liqo's controllers do.
package liqov0

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/liqov0"
)

const (
	// Liqo v0.x takes the first five characters of ids, which are UUIDs there.
	home   = "11111111-consumer"
	node   = "liqo-provider"
	tenant = "liqo-tenant-p1"
	local  = "web"
	remote = "web-remote"
	// patience bounds what a test waits for; nothing waits that long unless it fails.
	patience = 2 * time.Minute
)

// directory is what the remote cluster knows: one pod that it has forwarded.
type directory struct{}

func (directory) External(_ context.Context, consumer string, address netip.Addr) (netip.Addr, error) {
	if consumer == home && address.String() == "10.99.0.1" {
		return netip.MustParseAddr("192.168.5.4"), nil
	}
	return netip.Addr{}, ipam.ErrUnknown
}

func (directory) Home(context.Context, string, netip.Addr) (netip.Addr, error) {
	return netip.Addr{}, ipam.ErrUnknown
}

func (directory) Peered(context.Context, string) (bool, error) { return true, nil }

func (directory) PodCIDRs(context.Context) ([]netip.Prefix, error) { return nil, nil }

// serveIPAM serves the remote IPAM as liqo-network-manager of Liqo v0.x does: in plaintext.
func serveIPAM(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := ipam.NewServer(ipam.ServerConfig{
		Log: logr.Discard(), Metrics: ipam.NewMetrics(), Directory: directory{},
		Limits: ipam.Limits{PerSecond: 100, Burst: 100, Concurrent: 10, Connections: 10},
	})
	ctx, stop := context.WithCancel(context.Background())
	var group errgroup.Group
	group.Go(func() error { return server.Serve(ctx, ln) })
	t.Cleanup(func() {
		stop()
		require.NoError(t, group.Wait())
	})
	return ln.Addr().String()
}

// federation is the cluster with all that Liqo's controllers make of a peering.
type federation struct {
	*liqov0.Cluster
	client.Client
	t *testing.T
}

func newFederation(t *testing.T) *federation {
	t.Helper()
	cluster, err := liqov0.Start(t.Context(), t.TempDir(), t.Logf)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cl, err := client.New(cluster.Config, client.Options{})
	require.NoError(t, err)
	f := &federation{Cluster: cluster, Client: cl, t: t}
	for _, name := range []string{tenant, local, remote} {
		require.NoError(t, cl.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	f.identity()
	f.liqo("virtualkubelet.liqo.io/v1alpha1", "VirtualNode", node, map[string]any{
		"clusterIdentity": map[string]any{"clusterID": "p1", "clusterName": "provider"},
		"resourceQuota":   map[string]any{"hard": map[string]any{"cpu": "4", "memory": "8Gi", "pods": "110"}},
	}, nil)
	f.liqo("virtualkubelet.liqo.io/v1alpha1", "NamespaceMap", "p1", map[string]any{
		"desiredMapping": map[string]any{local: remote},
	}, map[string]any{
		"currentMapping": map[string]any{local: map[string]any{"remoteNamespace": remote, "phase": "Accepted"}},
	})
	f.liqo("net.liqo.io/v1alpha1", "TunnelEndpoint", "p1", map[string]any{
		"clusterIdentity": map[string]any{"clusterID": "p1", "clusterName": "provider"},
		"localPodCIDR":    "10.244.0.0/16", "localNATPodCIDR": "None", "localExternalCIDR": "192.168.6.0/24", "localNATExternalCIDR": "None",
		"remotePodCIDR": "10.244.0.0/16", "remoteNATPodCIDR": "10.30.0.0/16",
		"remoteExternalCIDR": "192.168.5.0/24", "remoteNATExternalCIDR": "192.168.30.0/24",
		"endpointIP": "192.0.2.1", "backendType": "wireguard", "backend_config": map[string]any{},
	}, map[string]any{"connection": map[string]any{"status": "Connected"}})
	return f
}

// identity is the Secret that a peering makes, with the credentials for the remote cluster.
func (f *federation) identity() {
	f.t.Helper()
	config, err := f.Cluster.Client(home, "system:masters")
	require.NoError(f.t, err)
	require.NoError(f.t, f.Create(f.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "kubeconfig-p1"},
		Data: map[string][]byte{
			"private-key": config.KeyData, "certificate": config.CertData,
			"apiServerCa": f.CA(), "apiServerUrl": []byte(f.URL()), "namespace": []byte(tenant),
		},
	}))
}

// liqo creates an object of Liqo in the tenant namespace, with a status.
func (f *federation) liqo(version, kind, name string, spec, status map[string]any) {
	f.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace(tenant)
	o.SetName(name)
	o.SetLabels(map[string]string{"liqo.io/remote-cluster-id": "p1", "clusterID": "p1"})
	require.NoError(f.t, f.Create(f.t.Context(), o))
	if status == nil {
		return
	}
	o.Object["status"] = status
	require.NoError(f.t, f.Status().Update(f.t.Context(), o))
}

// start starts the virtual kubelet with the arguments of liqo-controller-manager, and waits for its node.
func (f *federation) start(extra ...string) {
	f.t.Helper()
	port, err := f.Port()
	require.NoError(f.t, err)
	log, stop, err := f.VirtualKubelet("vk", append([]string{
		"--foreign-cluster-id=p1", "--foreign-cluster-name=provider", "--nodename=" + node, "--node-ip=127.0.0.1",
		"--tenant-namespace=" + tenant, "--home-cluster-id=" + home, "--home-cluster-name=consumer",
		"--foreign-kubeconfig-secret-name=kubeconfig-p1", "--create-node=true", "--node-check-network=true",
		"--metrics-enabled=false", "--node-ping-interval=0", fmt.Sprintf("--listen-port=%d", port),
		"--health-probe-address=0", "--certificate-type=self-signed",
	}, extra...)...)
	require.NoError(f.t, err)
	f.t.Cleanup(func() {
		stop()
		if text, err := os.ReadFile(log); err == nil && f.t.Failed() {
			f.t.Log(string(text))
		}
	})
	f.eventually("the node is ready", func() error {
		var n corev1.Node
		if err := f.Get(f.t.Context(), client.ObjectKey{Name: node}, &n); err != nil {
			return err
		}
		require.Equal(f.t, "virtual-kubelet", n.Labels["type"])
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("not yet")
	})
}

func (f *federation) eventually(what string, check func() error) {
	f.t.Helper()
	var last error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if last = check(); last == nil {
			return
		}
	}
	require.NoError(f.t, last, what)
}

// run creates a pod on the node, and does what the remote cluster does with its ShadowPod.
func (f *federation) run(name, ip string) {
	f.t.Helper()
	ctx := f.t.Context()
	require.NoError(f.t, f.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: local, Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "web"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}))
	shadow := &unstructured.Unstructured{}
	shadow.SetAPIVersion("virtualkubelet.liqo.io/v1alpha1")
	shadow.SetKind("ShadowPod")
	f.eventually("the ShadowPod of "+name, func() error {
		return f.Get(ctx, client.ObjectKey{Namespace: remote, Name: name}, shadow)
	})
	pod := &corev1.Pod{}
	require.NoError(f.t, runtime.DefaultUnstructuredConverter.FromUnstructured(shadow.Object["spec"].(map[string]any)["pod"].(map[string]any), &pod.Spec))
	pod.Namespace, pod.Name, pod.Labels = remote, name, shadow.GetLabels()
	pod.Spec.SchedulerName = "none" // There is one cluster, whose only node is the virtual one.
	require.NoError(f.t, f.Create(ctx, pod))
	before := pod.DeepCopy()
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}},
	}
	require.NoError(f.t, f.Status().Patch(ctx, pod, client.MergeFrom(before)))
}

func (f *federation) shows(name, ip string) {
	f.t.Helper()
	f.eventually(name+" shows "+ip, func() error {
		var pod corev1.Pod
		if err := f.Get(f.t.Context(), client.ObjectKey{Namespace: local, Name: name}, &pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP != ip {
			return fmt.Errorf("it is %s and shows %q", pod.Status.Phase, pod.Status.PodIP)
		}
		return nil
	})
}

// The program is started as liqo-controller-manager of Liqo v0.9.4 does, with the address of the remote IPAM in
// --kubelet-extra-args.
func TestPodsHaveTheAddressesOfTheRemoteIPAM(t *testing.T) {
	f := newFederation(t)
	f.start("--remote-ipam=server=" + serveIPAM(t))
	// The server answers in the remote cluster's own addresses: 192.168.5.4, which is remapped here.
	f.run("forwarded", "10.99.0.1")
	f.shows("forwarded", "192.168.30.4")
}
