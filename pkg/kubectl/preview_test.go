package kubectl

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
)

// offloaded is a provider of so many CPUs with the namespace ns.
func offloaded(id, cpus string) []client.Object {
	pc := provider(id)
	pc.Status.VirtualNodes[0].Resources.Granted = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpus), corev1.ResourceMemory: resource.MustParse("16Gi"),
	}
	of := map[string]string{consts.RemoteClusterID: id}
	return []client.Object{
		pc,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant-" + id, Labels: map[string]string{
			consts.RemoteClusterID: id, consts.TenantNamespaceLabel: "true",
		}}},
		&offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-" + id, Name: id, Labels: of},
			Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"ns": ""}},
			Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
				"ns": {Phase: offloadingv1beta1.MappingAccepted},
			}},
		},
	}
}

func TestPreviewOfADrain(t *testing.T) {
	asking := func(name, cpus string) *corev1.Pod {
		pod := placed(name, "p1")
		pod.UID = types.UID(name)
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}
		return pod
	}
	keeper := asking("db-0", "1")
	keeper.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	objects := append(offloaded("p1", "8"), offloaded("p2", "2")...)
	s, screen := at(t, interceptor.Funcs{}, append(objects, asking("web-0", "2"), asking("web-1", "2"), keeper, consumers("ns", "c1"),
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "1"},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		},
		&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{
				Name: "pv", Labels: map[string]string{v1alpha1.VolumeLabel: "true", v1alpha1.ProviderLabel: "p1"},
				Annotations: map[string]string{v1alpha1.MadeAtAnnotation: "p1"},
			},
			Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: "1"}},
		})...)
	require.NoError(t, s.PreviewDrain(t.Context(), "broker", []string{"p1"}, outputTable))
	require.Equal(t, []string{
		"POD FROM OUTCOME TO REASON",
		"ns/db-0 p1 Stays <none> 0/2 provider clusters fit: 1 draining, 1 volume data is at provider p1",
		"ns/web-0 p1 Moves p2 Would be assigned to provider p2: score 50 (free 17, failures 11, uptime 11, latency 6, start 5); " +
			"no other fits, 1 filtered: draining",
		"ns/web-1 p1 Waits <none> 0/2 provider clusters fit: 1 draining, 1 insufficient cpu",
		"1 would move, 1 would leave and wait, 1 would stay with their volumes",
	}, screen.lines())
	require.NoError(t, s.PreviewDrain(t.Context(), "broker", []string{"p2"}, outputTable))
	require.Equal(t, []string{"0 would move, 0 would leave and wait, 0 would stay with their volumes"}, screen.lines())

	require.NoError(t, s.PreviewDrain(t.Context(), "broker", []string{"p1"}, outputJSON))
	var departures []explain.Departure
	require.NoError(t, json.Unmarshal(screen.text.Bytes(), &departures))
	require.Len(t, departures, 3)
	require.Equal(t, explain.Departure{
		Pod: "ns/db-0", Outcome: explain.Stays, From: "p1",
		Message: "0/2 provider clusters fit: 1 draining, 1 volume data is at provider p1",
	}, departures[0])
	require.ErrorContains(t, s.PreviewDrain(t.Context(), "broker", []string{"p3"}, outputTable), "not found")
}
