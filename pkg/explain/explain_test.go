package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// cpuPod asks for that many CPUs.
func cpuPod(name, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		}}}},
	}
}

// tenant is the namespace where the peering with a provider lives.
func tenant(provider string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-" + provider, Labels: map[string]string{
		"liqo.io/remote-cluster-id": provider, "liqo.io/tenant-namespace": "true",
	}}}
}

// shown is a provider as its status shows it, with one slice of that many CPUs.
func shown(name, cpu string, ready bool, attributes map[string]string) *v1alpha1.ProviderCluster {
	status := metav1.ConditionFalse
	if ready {
		status = metav1.ConditionTrue
	}
	return &v1alpha1.ProviderCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ProviderClusterSpec{Attributes: attributes},
		Status: v1alpha1.ProviderClusterStatus{
			Conditions: []metav1.Condition{{Type: v1alpha1.ProviderReady, Status: status}},
			VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: name + "-1", Ready: ready, Resources: v1alpha1.Resources{
				Granted: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("8Gi")},
			}}},
		},
	}
}

func TestExplain(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	pod := cpuPod("pod", "3")
	pod.Spec.NodeName = "broker"
	pod.Labels = nil
	pod.Annotations = map[string]string{v1alpha1.FilterAnnotation: "provider.attributes['region'] == 'eu'"}
	taken := cpuPod("taken", "2")
	taken.Spec.NodeName, taken.Labels = "broker", map[string]string{v1alpha1.VirtualNodeLabel: "full-1", v1alpha1.ProviderLabel: "full"}
	elsewhere := cpuPod("elsewhere", "1")
	elsewhere.Spec.NodeName = "other"
	maps := func(provider, in string) *offloadingv1beta1.NamespaceMap {
		return &offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: tenant(in).Name, Name: provider,
				Labels: map[string]string{"liqo.io/remote-cluster-id": provider},
			},
			Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"ns": "ns-broker"}},
			Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
				"ns": {RemoteNamespace: "ns-broker", Phase: offloadingv1beta1.MappingAccepted},
			}},
		}
	}
	eu, us := map[string]string{"region": "eu"}, map[string]string{"region": "us"}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, pod, taken, elsewhere,
		shown("down", "4", false, eu), shown("far", "4", true, us), shown("fits", "4", true, eu), shown("full", "4", true, eu),
		shown("stranger", "4", true, eu), maps("down", "down"), maps("far", "far"), maps("fits", "fits"),
		maps("full", "full"), tenant("down"), tenant("far"), tenant("fits"), tenant("full"), tenant("stranger"),
		maps("stranger", "fits"), // It may not set this itself.
	).Build()

	e, err := Pod(t.Context(), c, "broker", client.ObjectKeyFromObject(pod), time.Now())
	require.NoError(t, err)
	require.Equal(t, "fits", e.Chosen)
	filtered := map[string]string{}
	for _, p := range e.Providers {
		filtered[p.Provider] = p.Filtered
	}
	require.Equal(t, map[string]string{
		"down": "not ready", "far": "pod filter", "fits": "", "full": "insufficient cpu", "stranger": "namespace not offloaded",
	}, filtered)

	var table strings.Builder
	require.NoError(t, e.Print(&table))
	lines := strings.Split(table.String(), "\n")
	require.Regexp(t, `^PROVIDER +VERDICT +SCORE +FAILURES +FREE`, lines[0])
	require.Regexp(t, `^fits +chosen +\d+ +\d+`, lines[3])
	require.Regexp(t, `^full +insufficient cpu +- +-`, lines[4])
	require.Contains(t, table.String(), "Would be assigned to provider fits: score")

	_, err = Pod(t.Context(), c, "broker", client.ObjectKeyFromObject(elsewhere), time.Now())
	require.ErrorContains(t, err, `not bound to node broker (--broker-node) but to "other"`)
}
