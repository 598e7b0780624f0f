package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// differences tests the differences between a pod on a virtual node and a pod on a real node ("Not as on a node" in
// docs/virtual-kubelet.md).
func (c *chain) differences(t *testing.T) {
	consumer := c.consumers[1]
	namespace := c.offload(t, consumer)
	c.annotated(t, consumer, namespace)
	c.specDiffers(t, consumer, namespace)
	c.daemonSet(t, consumer, namespace)
}

// daemonSet tests pods of a DaemonSet: Liqo's webhook replaces the affinity by which each pod belongs to one node
// (pkg/webhooks/pod/mutations.go), so pods for a node of the consumer run on the virtual node, and the controller
// replaces them.
func (c *chain) daemonSet(t *testing.T, consumer *sandbox.Cluster, namespace string) {
	var nodes corev1.NodeList
	require.NoError(t, consumer.Client.List(t.Context(), &nodes))
	require.Greater(t, len(nodes.Items), 1, "the virtual node, and one of the consumer")
	everyNode := newPod(namespace, "").Spec
	everyNode.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	label := map[string]string{"app": "every-node"}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "every-node"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: label},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: label}, Spec: everyNode},
	}}
	require.NoError(t, consumer.Client.Create(t.Context(), set))
	created := map[types.UID]bool{}
	eventually(t, patient, func(ctx context.Context) error {
		var list corev1.PodList
		if err := consumer.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels(label)); err != nil {
			return err
		}
		for i := range list.Items {
			created[list.Items[i].UID] = true
		}
		if len(created) <= 2*len(nodes.Items) {
			return fmt.Errorf("%d pods were created for %d nodes", len(created), len(nodes.Items))
		}
		return nil
	})
	require.NoError(t, consumer.Client.Delete(t.Context(), set))
}

// specDiffers checks which fields of a pod's spec differ at the provider, and that no token gets there.
func (c *chain) specDiffers(t *testing.T, consumer *sandbox.Cluster, namespace string) {
	pod := newPod(namespace, "differs")
	pod.Spec.HostNetwork, pod.Spec.Containers[0].Ports = true, nil // Ports would be host ports, which the guard rejects.
	pod.Spec.NodeSelector = map[string]string{"type": "virtual-kubelet"}
	pod.Spec.PriorityClassName = "system-cluster-critical"
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{
		Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}},
	}}
	token := &corev1.ServiceAccountTokenProjection{Audience: "vault", Path: "token", ExpirationSeconds: ptr.To(int64(3600))}
	pod.Spec.Volumes = []corev1.Volume{{Name: "vault", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: token}}},
	}}}
	require.NoError(t, consumer.Client.Create(t.Context(), pod))
	atBroker := consumer.RemoteNamespace(namespace)
	var there corev1.Pod
	var at *sandbox.Cluster
	eventually(t, patient, func(ctx context.Context) error {
		for _, provider := range c.providers {
			key := client.ObjectKey{Namespace: c.broker.RemoteNamespace(atBroker), Name: "differs"}
			if err := provider.Client.Get(ctx, key, &there); err == nil && there.Spec.NodeName != "" {
				at = provider
				return nil
			}
		}
		return fmt.Errorf("no provider runs the pod")
	})
	require.False(t, there.Spec.HostNetwork)
	require.Empty(t, there.Spec.NodeSelector)
	require.Empty(t, there.Spec.PriorityClassName)
	require.Equal(t, "spec.nodeName", there.Spec.Containers[0].Env[0].ValueFrom.FieldRef.FieldPath)
	require.True(t, strings.HasPrefix(there.Spec.NodeName, at.Name), there.Spec.NodeName)

	secret := func(pod *corev1.Pod) *corev1.SecretProjection {
		t.Helper()
		for _, volume := range pod.Spec.Volumes {
			if volume.Name == "vault" {
				return volume.Projected.Sources[0].Secret
			}
		}
		require.Fail(t, "the pod has no volume of that name", "%+v", pod.Spec.Volumes)
		return nil
	}
	tokens := secret(podOf(t, c.broker, atBroker, "differs")).Name
	require.Equal(t, forge.ServiceAccountSecretName("differs"), tokens)
	require.NoError(t, c.broker.Client.Get(t.Context(), client.ObjectKey{Namespace: atBroker, Name: tokens}, &corev1.Secret{}))
	require.True(t, ptr.Deref(secret(&there).Optional, false), "the pod starts without it")
	err := at.Client.Get(t.Context(), client.ObjectKey{Namespace: there.Namespace, Name: secret(&there).Name}, &corev1.Secret{})
	require.True(t, kerrors.IsNotFound(err), "%v", err)
}

// annotated creates a pod with more annotations than the guard lets a consumer forward.
func (c *chain) annotated(t *testing.T, consumer *sandbox.Cluster, namespace string) {
	pod := newPod(namespace, "annotated")
	pod.Annotations = map[string]string{"large": strings.Repeat("x", 1<<18-100)}
	require.NoError(t, consumer.Client.Create(t.Context(), pod))
	eventually(t, patient, func(ctx context.Context) error {
		var list corev1.EventList
		if err := consumer.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			e := &list.Items[i]
			if e.InvolvedObject.Name == "annotated" && e.Reason == "FailedReflection" && strings.Contains(e.Message, "annotations") {
				return nil
			}
		}
		return errors.New("the pod has no event of the refusal")
	})
	require.NoError(t, consumer.Client.Delete(t.Context(), pod))
	eventually(t, patient, func(ctx context.Context) error {
		for cluster, in := range map[*sandbox.Cluster]string{consumer: namespace, c.broker: consumer.RemoteNamespace(namespace)} {
			if err := cluster.Client.Get(ctx, client.ObjectKey{Namespace: in, Name: "annotated"}, &corev1.Pod{}); !kerrors.IsNotFound(err) {
				return fmt.Errorf("%s: %w", cluster.Name, err)
			}
		}
		return nil
	})
}
