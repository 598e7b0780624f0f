// Package liqov0 tests the image with Liqo v0.9.4: three clusters with Liqo's own controllers, peered by the objects
// that liqoctl writes. The consumer uses the broker, and the broker uses the provider, where pods run (KWOK).
package liqov0

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/liqov0"
)

// patience is the timeout of all checks. Only a failing check takes that long.
const patience = 3 * time.Minute

// federation is the state that the tests share. They run in a fixed order.
type federation struct {
	*liqov0.Federation
	consumer, broker, provider *liqov0.Cluster
}

func TestLiqoV0(t *testing.T) {
	up, err := liqov0.Up(t.Context(), "e2e-liqo-v0", []liqov0.Spec{
		{Name: "provider", Nodes: true},
		// At the second hop the pod already has the fields that API server support adds, and a ShadowPod must not have
		// them twice.
		{Name: "broker", KubeletArgs: []string{"--enable-apiserver-support=false"}},
		// The consumer starts last: its Services then have the CIDR that Liqo chooses as the broker's external CIDR, so
		// Liqo remaps that.
		{Name: "consumer"},
	}, t.Logf)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, up.Close()) })
	f := &federation{up, up.Cluster("consumer"), up.Cluster("broker"), up.Cluster("provider")}
	for _, scenario := range []struct {
		name string
		run  func(*federation, *testing.T)
	}{
		{"ours does what stock does", (*federation).parity},
		{"the remote IPAM of liqo-network-manager", (*federation).networkManager},
		{"the remote IPAM of this project", (*federation).ownServer},
		{"the catalog", (*federation).catalog},
	} {
		if !t.Run(scenario.name, func(t *testing.T) { scenario.run(f, t) }) {
			f.logs(t)
			return // The next scenario depends on this one.
		}
	}
}

// logs prints the ends of the relevant logs.
func (f *federation) logs(t *testing.T) {
	t.Helper()
	for _, c := range f.Clusters {
		for _, component := range []string{"liqo-controller-manager", "liqo-network-manager", "vk-liqo"} {
			t.Log(c.Name, c.Log(component, 20))
		}
	}
}

func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			require.NoError(t, err, what)
		case <-tick.C:
		}
	}
}

// configure does the manual steps of a user: it edits the Deployment liqo-controller-manager, and grants the virtual
// kubelet of a peering the right to review the callers of its kubelet API.
func configure(t *testing.T, c, remote *liqov0.Cluster, extra ...string) {
	t.Helper()
	var manager appsv1.Deployment
	key := client.ObjectKey{Namespace: "liqo", Name: "liqo-controller-manager"}
	require.NoError(t, c.Client.Get(t.Context(), key, &manager))
	args := &manager.Spec.Template.Spec.Containers[0].Args
	image := slices.IndexFunc(*args, func(arg string) bool { return strings.HasPrefix(arg, "--kubelet-image=") })
	require.Equal(t, "--kubelet-image="+liqov0.ImageStock, (*args)[image])
	(*args)[image] = "--kubelet-image=" + liqov0.ImageOurs
	for _, arg := range extra {
		*args = append(*args, "--kubelet-extra-args="+arg)
	}
	require.NoError(t, c.Client.Update(t.Context(), &manager))
	require.NoError(t, c.WaitLiqo(t.Context()))
	require.NoError(t, c.Apply(t.Context(), "virtual-kubelet-auth.yaml"))
	grant(t, c, remote)
}

// grant binds the ClusterRole of deploy/virtual-kubelet-auth.yaml to the virtual kubelet of a peering before that
// exists.
func grant(t *testing.T, c, remote *liqov0.Cluster) {
	t.Helper()
	tenant, node := "liqo-tenant-"+strings.TrimPrefix(remote.RemoteNamespace(""), "-"), c.VirtualNode(remote)
	require.NoError(t, c.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo-broker-vk-kubelet-auth-" + tenant + "-" + node},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-broker-vk-kubelet-auth"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenant, Name: node}},
	}))
}

// editKubelet changes the image and the arguments of the virtual kubelet of an existing virtual node, which otherwise
// keeps its original ones, and waits until only the new pod runs.
func editKubelet(t *testing.T, c, remote *liqov0.Cluster, edit func(image string, args []string) (string, []string)) {
	t.Helper()
	tenant, err := c.TenantNamespace(t.Context(), remote)
	require.NoError(t, err)
	path := []string{"spec", "template", "spec", "template", "spec", "containers"}
	key := client.ObjectKey{Namespace: tenant, Name: c.VirtualNode(remote)}
	eventually(t, "edit the VirtualNode", func(ctx context.Context) error {
		node := virtualNode()
		if err := c.Client.Get(ctx, key, node); err != nil {
			return err
		}
		containers, _, err := unstructured.NestedSlice(node.Object, path...)
		if err != nil {
			return err
		}
		first := containers[0].(map[string]any)
		args, _, err := unstructured.NestedStringSlice(first, "args")
		if err != nil {
			return err
		}
		first["image"], args = edit(first["image"].(string), args)
		if err := unstructured.SetNestedStringSlice(first, args, "args"); err != nil {
			return err
		}
		if err := unstructured.SetNestedSlice(node.Object, containers, path...); err != nil {
			return err
		}
		return c.Client.Update(ctx, node)
	})
	eventually(t, "the new virtual kubelet", func(ctx context.Context) error { return onlyTheNewest(ctx, c, key) })
}

func virtualNode() *unstructured.Unstructured {
	node := &unstructured.Unstructured{}
	node.SetAPIVersion("virtualkubelet.liqo.io/v1alpha1")
	node.SetKind("VirtualNode")
	return node
}

// onlyTheNewest returns nil if the Deployment of a VirtualNode matches the VirtualNode, and has only up-to-date pods.
func onlyTheNewest(ctx context.Context, c *liqov0.Cluster, key client.ObjectKey) error {
	node := virtualNode()
	if err := c.Client.Get(ctx, key, node); err != nil {
		return err
	}
	var d appsv1.Deployment
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: "vk-" + key.Name}, &d); err != nil {
		return err
	}
	containers, _, _ := unstructured.NestedSlice(node.Object, "spec", "template", "spec", "template", "spec", "containers")
	first := containers[0].(map[string]any)
	args, _, _ := unstructured.NestedStringSlice(first, "args")
	container := &d.Spec.Template.Spec.Containers[0]
	if container.Image != first["image"] || !slices.Equal(container.Args, args) {
		return errors.New("the Deployment is not changed yet")
	}
	if s := &d.Status; s.ObservedGeneration < d.Generation ||
		s.UpdatedReplicas != 1 || s.Replicas != 1 || s.AvailableReplicas != 1 {
		return fmt.Errorf("the Deployment of %s: %+v", key.Name, d.Status)
	}
	var pods corev1.PodList
	labels := client.MatchingLabels(d.Spec.Selector.MatchLabels)
	if err := c.Client.List(ctx, &pods, client.InNamespace(key.Namespace), labels); err != nil {
		return err
	}
	if len(pods.Items) != 1 {
		return fmt.Errorf("%d pods of virtual kubelets", len(pods.Items))
	}
	return nil
}

// offload offloads a namespace of a cluster, with all its pods, to the clusters that it uses.
func offload(t *testing.T, c *liqov0.Cluster, namespace string) {
	t.Helper()
	require.NoError(t, client.IgnoreAlreadyExists(
		c.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})))
	require.NoError(t, c.Offload(t.Context(), namespace))
}

// pod creates a pod that the scheduler binds to a virtual node.
func pod(t *testing.T, c *liqov0.Cluster, namespace, name string) {
	t.Helper()
	require.NoError(t, c.Client.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "web"}}},
	}))
}

// running waits until a pod runs, and returns it.
func running(t *testing.T, c *liqov0.Cluster, namespace, name string) (pod *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+namespace+"/"+name+" runs", func(ctx context.Context) (err error) {
		pod, err = runs(ctx, c, namespace, name)
		return err
	})
	return pod
}

// runs returns a pod that runs.
func runs(ctx context.Context, c *liqov0.Cluster, namespace, name string) (*corev1.Pod, error) {
	var p corev1.Pod
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	if p.Status.Phase != corev1.PodRunning || p.Status.PodIP == "" {
		return nil, fmt.Errorf("%s: pod %s/%s on node %q is %s with address %q",
			c.Name, namespace, name, p.Spec.NodeName, p.Status.Phase, p.Status.PodIP)
	}
	return &p, nil
}

// forwarded waits until a pod of the broker runs there and at the provider, and shows the remote pod's address as Liqo
// translates it. It reads both pods each time: KWOK may write a second address of a new pod.
func (f *federation) forwarded(t *testing.T, namespace, name string) (here, there *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+namespace+"/"+name+" is forwarded to the provider", func(ctx context.Context) (err error) {
		if here, err = runs(ctx, f.broker, namespace, name); err != nil {
			return err
		}
		if there, err = runs(ctx, f.provider, f.broker.RemoteNamespace(namespace), name); err != nil {
			return err
		}
		if want := translated(t, f.broker, f.provider, "Pod", there.Status.PodIP); here.Status.PodIP != want {
			return fmt.Errorf("it shows %s, not %s", here.Status.PodIP, want)
		}
		return nil
	})
	require.Equal(t, f.broker.VirtualNode(f.provider), here.Spec.NodeName)
	require.Equal(t, "provider-node", there.Spec.NodeName, "it runs at the provider")
	return here, there
}
