package brokernode

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	k8stesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/webhooks/shadowpod"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/refusal"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 500_000_000, time.UTC)

func forwarderOf(t *testing.T, client *fake.Clientset) *Forwarder {
	t.Helper()
	return &Forwarder{
		View: testView(), Pods: client.CoreV1().Pods, Clock: clocktesting.NewFakePassiveClock(noon), Log: testr.New(t),
		Refused: func(string) {},
	}
}

// assignedPod was assigned just before noon.
func assignedPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "a", UID: "uid-a",
			Labels:      map[string]string{"brokering.liqo.io/virtual-node": "p1-gpu"},
			Annotations: map[string]string{"brokering.liqo.io/assigned-at": noon.Add(-200 * time.Millisecond).Format(time.RFC3339Nano)},
		},
		Status: corev1.PodStatus{
			Phase:      corev1.PodPending,
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
		},
	}
}

func exceeded() error {
	return deniedBy("shadowpod.validate.liqo.io", "peering cpu quota usage exceeded - free 1 / requested 9")
}

// deniedBy is the error that an API server returns for a webhook that answers 403.
func deniedBy(webhook, text string) error {
	return webhookerrors.ToStatusErr(webhook,
		&metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: text})
}

// alreadyRunning is the answer of Liqo's webhook to a ShadowPod that exists.
func alreadyRunning() error {
	return kerrors.NewForbidden(schema.GroupResource{Resource: "shadowpods"}, "a", errors.New("ShadowPod a is already running"))
}

func TestARefusedShadowPodIsReported(t *testing.T) {
	shadows := schema.GroupResource{Resource: "shadowpods"}
	absent := kerrors.NewNotFound(shadows, "a")
	rbac := kerrors.NewForbidden(shadows, "a", errors.New("RBAC"))
	for name, tc := range map[string]struct {
		answer error
		// asked is the answer to the request whether the provider has the ShadowPod.
		asked  error
		reason string
	}{
		"the quota is exceeded":                         {exceeded(), absent, "QuotaExceeded"},
		"the quota is exceeded, and Get is not allowed": {exceeded(), rbac, "QuotaExceeded"},
		"the provider allows nothing":                   {rbac, rbac, "Forbidden"},
		"the ShadowPod was made, and the answer lost":   {alreadyRunning(), nil, ""},
		"it is unknown whether the ShadowPod was made":  {alreadyRunning(), kerrors.NewTimeoutError("etcd", 1), ""},
		"the provider does not know":                    {kerrors.NewInternalError(errors.New("etcd")), absent, ""},
		"the ShadowPod is there":                        {kerrors.NewAlreadyExists(shadows, "a"), nil, ""},
		"the ShadowPod is created":                      {nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := assignedPod()
			client, liqo := fake.NewClientset(pod), liqofake.NewSimpleClientset()
			liqo.PrependReactor("create", "shadowpods", func(k8stesting.Action) (bool, runtime.Object, error) {
				return tc.answer != nil, nil, tc.answer
			})
			liqo.PrependReactor("get", "shadowpods", func(k8stesting.Action) (bool, runtime.Object, error) {
				return true, &offloadingv1beta1.ShadowPod{}, tc.asked
			})
			forwarder := forwarderOf(t, client)
			var reported []string
			forwarder.Refused = func(reason string) { reported = append(reported, reason) }
			lens := forwarder.client(liqo, corev1listers.NewPodLister(indexed(t, pod)).Pods("ns"))
			_, err := lens.OffloadingV1beta1().ShadowPods("ns-home").Create(t.Context(),
				&offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
			require.Equal(t, tc.answer, err, "Liqo makes its event, and tries again")

			now, err := client.CoreV1().Pods("ns").Get(t.Context(), "a", metav1.GetOptions{})
			require.NoError(t, err)
			if tc.reason == "" {
				require.Equal(t, pod.Status, now.Status)
				require.Empty(t, reported)
				return
			}
			require.Equal(t, []string{tc.reason}, reported)
			refused, found := refusal.Of(now)
			require.True(t, found)
			refused.At = refused.At.UTC()
			want := refusal.Refusal{VirtualNode: "p1-gpu", Reason: tc.reason, Message: tc.answer.Error(), At: noon.Truncate(time.Second)}
			if tc.reason == refusal.QuotaExceeded {
				want.Exceeded = corev1.ResourceCPU
			}
			require.Equal(t, want, refused)
		})
	}
}

// TestAnExceededQuotaIsRecognisedByTheTextOfLiqosWebhook fails if Liqo changes the text with which its webhook denies a
// ShadowPod that exceeds the quota.
func TestAnExceededQuotaIsRecognisedByTheTextOfLiqosWebhook(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, offloadingv1beta1.AddToScheme(scheme))
	quota := func(user string, cordoned bool) *offloadingv1beta1.Quota {
		return &offloadingv1beta1.Quota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-home", Name: user},
			Spec: offloadingv1beta1.QuotaSpec{
				User: user, LimitsEnforcement: offloadingv1beta1.NoLimitsEnforcement, Cordoned: &cordoned,
				Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), "example.com/gpu": resource.MustParse("1")},
			},
		}
	}
	validator := shadowpod.NewValidator(ctrlfake.NewClientBuilder().WithScheme(scheme).WithObjects(
		quota("open", false), quota("cordoned", true),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns-home", Labels: map[string]string{consts.RemoteClusterID: "home"}}},
	).Build(), true)
	// It fills the validator's cache once, and returns because the context has ended.
	ended, end := context.WithCancel(t.Context())
	end()
	require.Error(t, validator.CacheRefresher(time.Hour)(ended))

	for name, tc := range map[string]struct {
		user     string
		request  corev1.ResourceList
		reason   string
		exceeded corev1.ResourceName
	}{
		"more than the quota of cpu": {"open", requests(corev1.ResourceCPU, "2"), refusal.QuotaExceeded, corev1.ResourceCPU},
		"more than the quota of gpu": {"open", requests("example.com/gpu", "2"), refusal.QuotaExceeded, "example.com/gpu"},
		"a resource without a quota": {"open", requests(corev1.ResourceMemory, "1"), refusal.Forbidden, ""},
		"a cordoned user":            {"cordoned", nil, refusal.Forbidden, ""},
		"no quota":                   {"other", nil, refusal.Forbidden, ""},
	} {
		t.Run(name, func(t *testing.T) {
			shadow, err := json.Marshal(&offloadingv1beta1.ShadowPod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns-home", Name: "a", Labels: map[string]string{
					forge.LiqoOriginClusterIDKey: "home", consts.CreatorLabelKey: tc.user,
				}},
				Spec: offloadingv1beta1.ShadowPodSpec{Pod: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: tc.request},
				}}}},
			})
			require.NoError(t, err)
			response := validator.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: shadow}, DryRun: ptr.To(false),
			}})
			require.False(t, response.Allowed)
			answer := webhookerrors.ToStatusErr("shadowpod.validate.liqo.io", response.Result)
			require.True(t, kerrors.IsForbidden(answer), answer)
			require.Equal(t, refusal.Refusal{Reason: tc.reason, Exceeded: tc.exceeded, Message: answer.Error()}, refusalOf(answer))
		})
	}
}

func requests(name corev1.ResourceName, amount string) corev1.ResourceList {
	return corev1.ResourceList{name: resource.MustParse(amount)}
}

func TestOnlyTheNameOfAResourceIsReadAsOne(t *testing.T) {
	for text, want := range map[string]corev1.ResourceName{
		"peering  quota usage exceeded":                                "",
		"peering a:b quota usage exceeded":                             "",
		"peering " + strings.Repeat("x", 64) + " quota usage exceeded": "",
		"peering memory quota usage exceeded - fr":                     "memory",
	} {
		r := refusalOf(deniedBy("shadowpod.validate.liqo.io", text))
		require.Equal(t, refusal.QuotaExceeded, r.Reason, text)
		require.Equal(t, want, r.Exceeded, text)
	}
}

// A tenant must not be able to make the broker withhold a provider's capacity from all tenants, by a text that another
// admission webhook of the provider quotes.
func TestAQuotedTextIsNoExceededQuota(t *testing.T) {
	const quoted = "peering cpu quota usage exceeded"
	for _, answer := range []error{
		deniedBy("policies.example.org", quoted),
		deniedBy("policies.example.org", `admission webhook "shadowpod.validate.liqo.io" denied the request: `+quoted),
		deniedBy("shadowpod.validate.liqo.io", "annotation "+quoted),
		kerrors.NewForbidden(schema.GroupResource{Resource: "shadowpods"}, quoted, errors.New(quoted)),
	} {
		require.Equal(t, refusal.Forbidden, refusalOf(answer).Reason, answer)
	}
}

func TestAFailureToReportIsNoFailureOfTheRequest(t *testing.T) {
	client, liqo := fake.NewClientset(assignedPod()), liqofake.NewSimpleClientset()
	client.PrependReactor("patch", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the API server is away")
	})
	liqo.PrependReactor("create", "shadowpods", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, exceeded()
	})
	create := func(pods ...*corev1.Pod) error {
		lens := forwarderOf(t, client).client(liqo, corev1listers.NewPodLister(indexed(t, pods...)).Pods("ns"))
		_, err := lens.OffloadingV1beta1().ShadowPods("ns-home").Create(t.Context(),
			&offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		return err
	}
	require.Equal(t, exceeded(), create(assignedPod()))
	require.ErrorContains(t, create(), "is no longer assigned", "nothing is created that would not be reported")
	earlier := assignedPod()
	metav1.SetMetaDataAnnotation(&earlier.ObjectMeta, v1alpha1.AssignedAtAnnotation, "2026-01-01T00:00:00Z")
	require.ErrorIs(t, create(earlier), errMoved, "the cache lags: the broker may have been told already that nothing is there")
}

type rejecting struct {
	manager.FallbackReflector
	rejected []string
}

func (r *rejecting) Handle(_ context.Context, pod types.NamespacedName) error {
	r.rejected = append(r.rejected, pod.Name)
	return nil
}

func TestPodsOfNamespacesThatAreNotOffloadedGoElsewhere(t *testing.T) {
	now := metav1.Now()
	pending, running, done, deleted := assignedPod(), assignedPod(), assignedPod(), assignedPod()
	running.Name, running.Status.Phase = "running", corev1.PodRunning
	done.Name, done.Status.Phase = "done", corev1.PodFailed
	deleted.Name, deleted.DeletionTimestamp = "deleted", &now

	client, liqo := fake.NewClientset(pending, running, done), &rejecting{}
	pods := corev1listers.NewPodLister(indexed(t, pending, running, done, deleted))
	fallback := forwarderOf(t, client).Fallback(pods.Pods, liqo)
	for _, name := range []string{"a", "running", "done", "deleted", "vanished"} {
		require.NoError(t, fallback.Handle(t.Context(), types.NamespacedName{Namespace: "ns", Name: name}))
	}
	require.Equal(t, []string{"done", "deleted", "vanished"}, liqo.rejected, "Liqo rejects none that could still run")

	for _, name := range []string{"a", "running"} {
		pod, err := client.CoreV1().Pods("ns").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		var messages []string
		for _, condition := range pod.Status.Conditions {
			if condition.Type == "refused.brokering.liqo.io/p1-gpu" && condition.Reason == "NamespaceNotOffloaded" {
				messages = append(messages, condition.Message)
			}
		}
		require.Equal(t, []string{"namespace ns is not offloaded to this provider cluster"}, messages)
	}

	require.NoError(t, client.CoreV1().Pods("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}))
	err := fallback.Handle(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"})
	require.True(t, kerrors.IsNotFound(err), "a report that failed is retried")
}
