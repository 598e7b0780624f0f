package placement

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/webhooks/shadowpod"

	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// shadowOf is the ShadowPod of a pod at the provider "p", whose quota is for the user "slice".
func shadowOf(pod *corev1.Pod) *offloadingv1beta1.ShadowPod {
	return &offloadingv1beta1.ShadowPod{
		TypeMeta: metav1.TypeMeta{APIVersion: offloadingv1beta1.SchemeGroupVersion.String(), Kind: "ShadowPod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns-broker", Name: pod.Name, UID: types.UID(pod.Name), Labels: map[string]string{
			forge.LiqoOriginClusterIDKey: "broker", consts.CreatorLabelKey: "slice",
		}},
		Spec:   offloadingv1beta1.ShadowPodSpec{Pod: pod.Spec},
		Status: offloadingv1beta1.ShadowPodStatus{Phase: pod.Status.Phase},
	}
}

// Liqo's own webhook counts the requests of a pod, in any phase, until the ShadowPod is deleted.
func TestWhatAPodTakesIsWhatLiqosQuotaCounts(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	podOf := func(name, cpu string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}}}},
			Status: corev1.PodStatus{Phase: phase},
		}
	}
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed} {
		t.Run(string(phase), func(t *testing.T) {
			before := podOf("before", "1500m", phase)
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
					Name: "ns-broker", Labels: map[string]string{consts.RemoteClusterID: "broker"},
				}},
				&offloadingv1beta1.Quota{
					ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-broker", Name: "slice"},
					Spec: offloadingv1beta1.QuotaSpec{
						User: "slice", LimitsEnforcement: offloadingv1beta1.NoLimitsEnforcement,
						Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
					},
				},
				shadowOf(before)).Build()
			validator := shadowpod.NewValidator(c, true)
			once, cancel := context.WithCancel(t.Context())
			cancel()
			_ = validator.CacheRefresher(time.Hour)(once) // It fills its cache before it returns that ctx has ended.
			handle := func(request admissionv1.AdmissionRequest) bool {
				request.DryRun = ptr.To(false)
				return validator.Handle(t.Context(), admission.Request{AdmissionRequest: request}).Allowed
			}
			object := func(pod *corev1.Pod) runtime.RawExtension {
				raw, err := json.Marshal(shadowOf(pod))
				require.NoError(t, err)
				return runtime.RawExtension{Raw: raw}
			}
			admitted := func(pod *corev1.Pod) bool {
				return handle(admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: object(pod)})
			}

			left := 2000 - AssignmentOf(before, PlaceOf(before)).Requests[corev1.ResourceCPU]
			require.EqualValues(t, 500, left)
			require.False(t, admitted(podOf("large", "501m", "")))
			require.True(t, admitted(podOf("small", "500m", "")))
			require.True(t, handle(admissionv1.AdmissionRequest{Operation: admissionv1.Delete, OldObject: object(before)}))
			require.True(t, admitted(podOf("large", "1500m", "")))
		})
	}
}
