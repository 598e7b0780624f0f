package liqov0

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/liqov0"
)

// observation is what a user sees of a virtual node and of what is forwarded, at both ends.
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
	// Endpoints says whether the endpoint of the pod has its address here.
	Endpoints bool
	// Translated says whether the pod shows its remote address as Liqo translates it.
	Translated bool
	Log        string
	// Deleted says whether the pod's deletion here deletes it there.
	Deleted bool
}

// parity runs one scenario with Liqo's virtual kubelet of the broker, and then with ours.
func (f *federation) parity(t *testing.T) {
	require.NoError(t, f.Peer(t.Context(), f.broker.Name, f.provider.Name))
	offload(t, f.broker, "parity")
	stock := f.observe(t, "stock")
	assert.True(t, stock.Translated && stock.Endpoints && stock.Deleted, "%+v", stock)
	assert.Contains(t, stock.Log, "hello from a simulated container")

	require.NoError(t, f.broker.Apply(t.Context(), "virtual-kubelet-auth.yaml"))
	grant(t, f.broker, f.provider)
	editKubelet(t, f.broker, f.provider, func(image string, args []string) (string, []string) {
		require.Equal(t, liqov0.ImageStock, image)
		return liqov0.ImageOurs, args
	})
	ours := f.observe(t, "ours")
	// Liqo v0.9.4 labels the node so only if it is told to; see "The node has the label" in docs/virtual-kubelet.md.
	delete(ours.NodeLabels, "type")
	delete(stock.NodeLabels, "type")
	assert.Equal(t, stock, ours)
}

// observe creates a pod, and what it needs, in the namespace that is offloaded.
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
	here, there := running(t, c, "parity", name), running(t, f.provider, remote, name)
	var seen observation
	seen.node(t, c, here.Spec.NodeName)
	seen.pods(here, there)
	seen.Translated = here.Status.PodIP == translated(t, c, f.provider, "Pod", there.Status.PodIP)
	seen.reflected(t, f.provider, client.ObjectKey{Namespace: remote, Name: name})
	seen.Endpoints = endpoint(t, c, name, here.Status.PodIP)
	eventually(t, "the log of the pod", func(ctx context.Context) error {
		log, err := c.Kube.CoreV1().Pods("parity").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
		seen.Log = string(log)
		return err
	})
	require.NoError(t, c.Client.Delete(ctx, here))
	eventually(t, "the remote pod is gone", func(ctx context.Context) error { return noPods(ctx, f.provider, remote) })
	eventually(t, "the pod is gone", func(ctx context.Context) error { return noPods(ctx, c, "parity") })
	seen.Deleted = true
	return seen
}

func (o *observation) node(t *testing.T, c *liqov0.Cluster, name string) {
	t.Helper()
	var node corev1.Node
	require.NoError(t, c.Client.Get(t.Context(), client.ObjectKey{Name: name}, &node))
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

// reflected reads the copies of what observe created.
func (o *observation) reflected(t *testing.T, c *liqov0.Cluster, key client.ObjectKey) {
	t.Helper()
	var configMap corev1.ConfigMap
	var secret corev1.Secret
	var service corev1.Service
	for _, object := range []client.Object{&configMap, &secret, &service} {
		eventually(t, fmt.Sprintf("a %T at the provider", object), func(ctx context.Context) error { return c.Client.Get(ctx, key, object) })
	}
	o.ConfigMap, o.Secret = configMap.Data, map[string]string{}
	for k, v := range secret.Data {
		o.Secret[k] = string(v)
	}
	for _, port := range service.Spec.Ports {
		o.ServicePorts = append(o.ServicePorts, port.Port)
	}
}

// endpoint waits until the Service has the endpoint.
func endpoint(t *testing.T, c *liqov0.Cluster, service, address string) bool {
	t.Helper()
	eventually(t, "the endpoint of the pod", func(ctx context.Context) error {
		var slices discoveryv1.EndpointSliceList
		if err := c.Client.List(ctx, &slices, client.InNamespace("parity"), client.MatchingLabels{discoveryv1.LabelServiceName: service}); err != nil {
			return err
		}
		for i := range slices.Items {
			for _, endpoint := range slices.Items[i].Endpoints {
				if endpoint.Addresses[0] == address {
					return nil
				}
			}
		}
		return errors.New("not yet")
	})
	return true
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
