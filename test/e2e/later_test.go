package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// schedulingAPIs are the versions of the API that serves PodGroups, by the version of Kubernetes.
var schedulingAPIs = map[string]string{"v1.36.3": "v1alpha2", "v1.37.2": "v1beta1"}

// TestLaterKubernetes runs control planes of a later Kubernetes than the one that Liqo and this project were built
// with. Only make matrix sets the variable, since building that version takes a quarter of an hour.
func TestLaterKubernetes(t *testing.T) {
	version := os.Getenv(kubernetesVariable)
	if version == "" || version == sandbox.KubernetesVersion {
		t.Skipf("%s=%s runs it", kubernetesVariable, strings.Join(sandbox.KubernetesVersions()[1:], "|"))
	}
	require.Contains(t, schedulingAPIs, version)
	s := up(t, sandbox.Options{
		Name: "laterkubernetes", Consumers: 1, Providers: 1, BrokerNode: brokerNode,
		// Only in the API server: kube-scheduler would wait for a PodGroup.
		APIServerArgs: []string{
			"--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/" + schedulingAPIs[version] + "=true",
		},
	})
	consumer, broker, provider := s.Cluster(sandbox.Consumer(1)), s.Cluster(sandbox.Broker), s.Cluster(sandbox.Provider(1))
	require.NoError(t, consumer.Offload(t.Context(), "later"))
	atBroker := consumer.RemoteNamespace("later")
	atProvider := broker.RemoteNamespace(atBroker)

	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "grouped", "namespace": "later"},
		"spec": map[string]any{
			"containers":      []any{map[string]any{"name": "c", "image": "image"}},
			"schedulingGroup": map[string]any{"podGroupName": "group"},
		},
	}}
	elsewhere := pod.DeepCopy()
	elsewhere.SetNamespace("default")
	require.NoError(t, consumer.Client.Create(t.Context(), elsewhere))
	require.NoError(t, consumer.Client.Create(t.Context(), pod))
	eventually(t, patient, func(ctx context.Context) error {
		var at corev1.Pod
		if err := consumer.Client.Get(ctx, client.ObjectKey{Namespace: "later", Name: "grouped"}, &at); err != nil {
			return err
		}
		if at.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod grouped is %s", at.Status.Phase)
		}
		return nil
	})

	podKind := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	shadowKind := schema.GroupVersionKind{Group: "offloading.liqo.io", Version: "v1beta1", Kind: "ShadowPod"}
	for _, hop := range []struct {
		at        *sandbox.Cluster
		namespace string
		kind      schema.GroupVersionKind
		path      []string
		kept      bool
	}{
		{consumer, "default", podKind, []string{"spec", "schedulingGroup"}, true},
		// In an offloaded namespace Liqo's webhook rewrites each pod with the types that it was built with
		// (pkg/webhooks/pod/pod.go).
		{consumer, "later", podKind, []string{"spec", "schedulingGroup"}, false},
		// The client of the virtual kubelet does not know the field, and Liqo's CRD has no place for it.
		{broker, atBroker, shadowKind, []string{"spec", "pod", "schedulingGroup"}, false},
		{broker, atBroker, podKind, []string{"spec", "schedulingGroup"}, false},
		{provider, atProvider, shadowKind, []string{"spec", "pod", "schedulingGroup"}, false},
		{provider, atProvider, podKind, []string{"spec", "schedulingGroup"}, false},
	} {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(hop.kind)
		require.NoError(t, hop.at.Client.Get(t.Context(), client.ObjectKey{Namespace: hop.namespace, Name: "grouped"}, object))
		_, kept, err := unstructured.NestedMap(object.Object, hop.path...)
		require.NoError(t, err)
		require.Equal(t, hop.kept, kept, "%s of %s", hop.kind.Kind, hop.at.Name)
	}
}
