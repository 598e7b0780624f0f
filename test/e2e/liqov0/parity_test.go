package liqov0

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/liqov0"
)

// observation holds the user-visible state of a virtual node and of forwarded objects, at both ends.
type observation struct {
	NodeLabels      map[string]string
	NodeCapacity    map[string]string
	NodeConditions  map[string]string
	Taints          []corev1.Taint
	PodConditions   map[string]string
	PodContainers   []string
	RemotePodLabels map[string]string
	RemotePodSpec   []string
	ConfigMap       map[string]string
	Secret          map[string]string
	ServicePorts    []int32
	Log             string
}

// parity runs one scenario with Liqo's virtual kubelet of the broker, and then with ours.
func (f *federation) parity(t *testing.T) {
	require.NoError(t, f.Peer(t.Context(), f.broker.Name, f.provider.Name))
	offload(t, f.broker, "parity")
	stock := f.observe(t, "stock")
	assert.Contains(t, stock.Log, simulatedLog)

	// A pod that runs during the replacement is not changed.
	pod(t, f.broker, "parity", "kept")
	here, there := f.forwarded(t, "parity", "kept")
	stockCalls := f.kubeletCalls(t, "kept")
	f.open(t, "kept")
	require.NoError(t, f.broker.Apply(t.Context(), "virtual-kubelet-auth.yaml"))
	grant(t, f.broker, f.provider)
	editKubelet(t, f.broker, f.provider, func(image string, args []string) (string, []string) {
		require.Equal(t, liqov0.ImageStock, image)
		return liqov0.ImageOurs, args
	})
	hereNow, thereNow := f.forwarded(t, "parity", "kept")
	assert.Equal(t, []types.UID{here.UID, there.UID}, []types.UID{hereNow.UID, thereNow.UID})
	f.kubeletAPI(t, stockCalls)
	require.NoError(t, f.broker.Client.Delete(t.Context(), here))
	f.nothingLeft(t)

	ours := f.observe(t, "ours")
	// Liqo v0.9.4 does not label the node; see "The node has the label" in docs/virtual-kubelet.md.
	assert.Equal(t, "virtual-kubelet", ours.NodeLabels["type"])
	delete(ours.NodeLabels, "type")
	delete(stock.NodeLabels, "type")
	assert.Equal(t, stock, ours)
}

// observe creates a pod and the objects that it needs in the offloaded namespace, and deletes the pod.
func (f *federation) observe(t *testing.T, name string) observation {
	t.Helper()
	ctx, c, remote := t.Context(), f.broker, f.broker.RemoteNamespace("parity")
	meta := metav1.ObjectMeta{Namespace: "parity", Name: name}
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"k": "v"}},
		&corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"k": "v"}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
		}},
	} {
		require.NoError(t, c.Client.Create(ctx, o))
	}
	pod(t, c, "parity", name)
	endpoint(t, f, name)
	here, there := f.forwarded(t, "parity", name)
	var seen observation
	seen.node(t, c, here.Spec.NodeName)
	seen.pods(here, there)
	seen.reflected(t, f.provider, client.ObjectKey{Namespace: remote, Name: name})
	eventually(t, "the log of the pod", func(ctx context.Context) error {
		log, err := c.Kube.CoreV1().Pods("parity").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
		seen.Log, _, _ = strings.Cut(string(log), "\n") // All pods share one log, and attach appends to it.
		return err
	})
	require.NoError(t, c.Client.Delete(ctx, here))
	f.nothingLeft(t)
	return seen
}

// nothingLeft waits until the pods of the namespace are gone in both clusters.
func (f *federation) nothingLeft(t *testing.T) {
	t.Helper()
	remote := f.broker.RemoteNamespace("parity")
	eventually(t, "the remote pods are gone", func(ctx context.Context) error { return noPods(ctx, f.provider, remote) })
	eventually(t, "the pods are gone", func(ctx context.Context) error { return noPods(ctx, f.broker, "parity") })
}

func (o *observation) node(t *testing.T, c *liqov0.Cluster, name string) {
	t.Helper()
	var node corev1.Node
	eventually(t, "the node is not tainted as not ready", func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return err
		}
		// Kubernetes removes its taints some time after the Node is Ready.
		if slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable
		}) {
			return fmt.Errorf("its taints are %v", node.Spec.Taints)
		}
		return nil
	})
	o.NodeLabels, o.NodeCapacity, o.NodeConditions = node.Labels, map[string]string{}, map[string]string{}
	for resource, amount := range node.Status.Capacity {
		o.NodeCapacity[string(resource)] = amount.String()
	}
	for _, condition := range node.Status.Conditions {
		o.NodeConditions[string(condition.Type)] = string(condition.Status) + " " + condition.Reason
	}
	for _, taint := range node.Spec.Taints {
		taint.TimeAdded = nil
		o.Taints = append(o.Taints, taint)
	}
}

func (o *observation) pods(here, there *corev1.Pod) {
	o.PodConditions = map[string]string{}
	for _, condition := range here.Status.Conditions {
		o.PodConditions[string(condition.Type)] = string(condition.Status)
	}
	for i := range here.Status.ContainerStatuses {
		s := &here.Status.ContainerStatuses[i]
		o.PodContainers = append(o.PodContainers, fmt.Sprint(s.Name, s.Ready, s.State.Running != nil, s.RestartCount))
	}
	o.RemotePodLabels = there.Labels
	for i := range there.Spec.Containers {
		container := &there.Spec.Containers[i]
		o.RemotePodSpec = append(o.RemotePodSpec, container.Name, container.Image)
		for _, variable := range container.Env {
			o.RemotePodSpec = append(o.RemotePodSpec, variable.Name)
		}
		for _, mount := range container.VolumeMounts {
			o.RemotePodSpec = append(o.RemotePodSpec, mount.MountPath)
		}
	}
}

// reflected reads the copies of the objects that observe created.
func (o *observation) reflected(t *testing.T, c *liqov0.Cluster, key client.ObjectKey) {
	t.Helper()
	var configMap corev1.ConfigMap
	var secret corev1.Secret
	var service corev1.Service
	for _, object := range []client.Object{&configMap, &secret, &service} {
		eventually(t, fmt.Sprintf("a %T at the provider", object), func(ctx context.Context) error {
			return c.Client.Get(ctx, key, object)
		})
	}
	o.ConfigMap, o.Secret = configMap.Data, map[string]string{}
	for k, v := range secret.Data {
		o.Secret[k] = string(v)
	}
	for _, port := range service.Spec.Ports {
		o.ServicePorts = append(o.ServicePorts, port.Port)
	}
}

// endpoint waits until a Service has the pod of the same name as its endpoint, at the address that the pod shows.
func endpoint(t *testing.T, f *federation, name string) {
	t.Helper()
	eventually(t, "the endpoint of the pod", func(ctx context.Context) error {
		here, _ := f.forwarded(t, "parity", name)
		var list discoveryv1.EndpointSliceList
		labels := client.MatchingLabels{discoveryv1.LabelServiceName: name}
		if err := f.broker.Client.List(ctx, &list, client.InNamespace("parity"), labels); err != nil {
			return err
		}
		var found []string
		for i := range list.Items {
			for j := range list.Items[i].Endpoints {
				found = append(found, list.Items[i].Endpoints[j].Addresses...)
			}
		}
		if !slices.Contains(found, here.Status.PodIP) {
			return fmt.Errorf("the endpoints are %v, not %s", found, here.Status.PodIP)
		}
		return nil
	})
}

func podKind() *corev1.Pod { return &corev1.Pod{} }

func noPods(ctx context.Context, c *liqov0.Cluster, namespace string) error {
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if n := len(pods.Items); n > 0 {
		return fmt.Errorf("%s still has %d pods in %s", c.Name, n, namespace)
	}
	return nil
}
