package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
)

func TestTheApplicationOfAPod(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"no label, no application": {nil, ""},
		"the recommended label":    {map[string]string{"app.kubernetes.io/name": "web", "app": "x"}, "ns/app.kubernetes.io/name=web"},
		"one instance of several": {
			map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "a"}, "ns/app.kubernetes.io/instance=a",
		},
		"the label that everybody uses": {map[string]string{"app": "web"}, "ns/app=web"},
		"an empty label is no label":    {map[string]string{"app": ""}, ""},
		"the label of Kubernetes' own":  {map[string]string{"k8s-app": "dns"}, "ns/k8s-app=dns"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			pod.Namespace, pod.Labels = "ns", tc.labels
			require.Equal(t, tc.want, appOf(pod))
		})
	}
}

func TestWhoseANamespaceIs(t *testing.T) {
	const label, managed, tenant = "liqo.io/remote-cluster-id", "liqo.io/managed-by-namespace-map", "liqo.io/tenant-namespace"
	for name, tc := range map[string]struct {
		labels, annotations map[string]string
		consumer, tenant    string
	}{
		"made here":                    {},
		"made by Liqo for a consumer":  {map[string]string{label: "c1"}, map[string]string{managed: "liqo-tenant-c1/c1"}, "c1", ""},
		"labelled by an administrator": {map[string]string{label: "c1"}, nil, "", ""},
		"the tenant namespace":         {map[string]string{label: "c1", tenant: "true"}, nil, "", "c1"},
		"the tenant namespace, whatever it is annotated with": {
			map[string]string{label: "c1", tenant: "true"}, map[string]string{managed: "liqo-tenant-c1/c1"}, "", "c1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels, Annotations: tc.annotations}}
			require.Equal(t, tc.consumer, ConsumerOf(namespace))
			require.Equal(t, tc.tenant, TenantOf(namespace))
		})
	}
}

func TestWhatAPodTakes(t *testing.T) {
	requests := resources.Amounts{corev1.ResourceCPU: 1000, corev1.ResourcePods: 1}
	at := scheduler.Place{Provider: "q", VirtualNode: "q1"}
	running := scheduler.Assignment{UID: "uid", Place: at, App: "ns/app=web", Requests: requests}
	ended := scheduler.Assignment{
		UID: "uid", Place: at, Requests: resources.Amounts{corev1.ResourceCPU: 1000}, Ended: true,
	}
	for name, tc := range map[string]struct {
		phase            corev1.PodPhase
		assigned, moving bool
		want             *scheduler.Assignment
	}{
		"a running pod":                    {corev1.PodRunning, true, false, &running},
		"a pod that leaves":                {corev1.PodPending, false, true, &running},
		"a pod that is nowhere":            {corev1.PodPending, false, false, nil},
		"a pod that has succeeded":         {corev1.PodSucceeded, true, false, &ended},
		"a pod that has failed":            {corev1.PodFailed, true, false, &ended},
		"a pod that ended while it left":   {corev1.PodFailed, false, true, nil},
		"a pod that ended and was nowhere": {corev1.PodFailed, false, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Status: corev1.PodStatus{Phase: tc.phase}}
			pod.Namespace, pod.UID, pod.Labels, pod.Annotations = "ns", "uid", map[string]string{"app": "web"}, map[string]string{}
			pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
			}}}
			if tc.assigned {
				pod.Labels[v1alpha1.VirtualNodeLabel], pod.Labels[v1alpha1.ProviderLabel] = "q1", "q"
			}
			if tc.moving {
				pod.Annotations[v1alpha1.MovingFromAnnotation], pod.Annotations[v1alpha1.MovingFromProviderAnnotation] = "q1", "q"
			}
			at := PlaceOf(pod)
			if tc.want == nil {
				require.Empty(t, at)
				return
			}
			if !tc.want.Ended {
				tc.want.Peer = constraints.PeerOf(pod, nil)
			}
			require.Equal(t, *tc.want, AssignmentOf(pod, at))
		})
	}
}
