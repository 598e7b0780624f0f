package refusal

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 500_000_000, time.UTC)

// pod was assigned to VirtualNode p1-gpu just before noon.
func pod(conditions ...corev1.PodCondition) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "a", UID: "uid-a", Labels: map[string]string{"brokering.liqo.io/virtual-node": "p1-gpu"},
			Annotations: map[string]string{"brokering.liqo.io/assigned-at": noon.Add(-200 * time.Millisecond).Format(time.RFC3339Nano)},
		},
		Status: corev1.PodStatus{
			Conditions: append(conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}),
		},
	}
}

func condition(virtualNode string, at time.Time, status corev1.ConditionStatus, message string) corev1.PodCondition {
	return corev1.PodCondition{
		Type: corev1.PodConditionType("refused.brokering.liqo.io/" + virtualNode), Status: status, Reason: "Forbidden",
		Message: message, LastTransitionTime: metav1.NewTime(at.Truncate(time.Second)),
	}
}

func TestARefusalIsReadAndReportedOncePerAssignment(t *testing.T) {
	unassigned := pod(condition("p1-gpu", noon.Add(-time.Hour), corev1.ConditionTrue, "full"))
	unassigned.Annotations = nil
	unassigned.CreationTimestamp = metav1.NewTime(noon.Add(-2 * time.Hour))
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		read    string
		reports bool
	}{
		"not refused": {pod(), "", true},
		"refused in the second of the assignment": {pod(condition("p1-gpu", noon, corev1.ConditionTrue, "full")), "full", false},
		"refused before, and assigned again": {
			pod(condition("p1-gpu", noon.Add(-time.Second), corev1.ConditionTrue, "full")), "", true,
		},
		"refused by another VirtualNode before": {pod(condition("p2", noon, corev1.ConditionTrue, "full")), "", true},
		"refused by both": {
			pod(condition("p2", noon, corev1.ConditionTrue, "p2 is full"), condition("p1-gpu", noon, corev1.ConditionTrue, "full")),
			"full", false,
		},
		"refused for another reason":                     {pod(condition("p1-gpu", noon, corev1.ConditionTrue, "fuller")), "fuller", true},
		"the condition is false":                         {pod(condition("p1-gpu", noon, corev1.ConditionFalse, "full")), "", true},
		"refused, and the time of assignment is unknown": {unassigned, "full", false},
	} {
		t.Run(name, func(t *testing.T) {
			read, found := Of(tc.pod)
			require.Equal(t, tc.read != "", found)
			require.Equal(t, tc.read, read.Message)

			client := fake.NewClientset(tc.pod)
			reported, err := Report(t.Context(), client.CoreV1().Pods("ns"), tc.pod,
				Refusal{VirtualNode: "p1-gpu", Reason: Forbidden, Message: "full", At: noon})
			require.NoError(t, err)
			require.Equal(t, tc.reports, reported)
			require.Equal(t, tc.reports, len(client.Actions()) == 1)
		})
	}
}

// A virtual kubelet runs on another machine than the broker, which wrote the time of the assignment.
func TestARefusalCountsByWhicheverClock(t *testing.T) {
	for _, behind := range []time.Duration{0, 3 * time.Second, 10 * time.Minute} {
		assigned := pod()
		client := fake.NewClientset(assigned)
		_, err := Report(t.Context(), client.CoreV1().Pods("ns"), assigned,
			Refusal{VirtualNode: "p1-gpu", Reason: Forbidden, Message: "full", At: noon.Add(-behind)})
		require.NoError(t, err)
		var refused *corev1.Pod
		refused, err = client.CoreV1().Pods("ns").Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		_, found := Of(refused)
		require.True(t, found, "its clock is %s behind", behind)
	}
}

func TestWhatIsReportedIsRead(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, condition string
		exceeded          corev1.ResourceName
	}{
		"by a rule":                          {Forbidden, "Forbidden", ""},
		"by a quota":                         {QuotaExceeded, "QuotaExceeded:cpu", "cpu"},
		"by a quota of an extended resource": {QuotaExceeded, "QuotaExceeded:nvidia.com/gpu", "nvidia.com/gpu"},
		"by a quota of whatever, as older virtual kubelets report it": {QuotaExceeded, "QuotaExceeded", ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(pod())
			want := Refusal{
				VirtualNode: "p1-gpu", Reason: tc.reason, Exceeded: tc.exceeded,
				Message: "p1: full", At: noon.Truncate(time.Second),
			}
			_, err := Report(t.Context(), client.CoreV1().Pods("ns"), pod(), want)
			require.NoError(t, err)
			now, err := client.CoreV1().Pods("ns").Get(t.Context(), "a", metav1.GetOptions{})
			require.NoError(t, err)
			hasReason := func(c corev1.PodCondition) bool { return c.Reason == tc.condition }
			require.True(t, slices.ContainsFunc(now.Status.Conditions, hasReason))
			read, found := Of(now)
			require.True(t, found)
			read.At = read.At.UTC()
			require.Equal(t, want, read)
			again, err := Report(t.Context(), client.CoreV1().Pods("ns"), now, want)
			require.NoError(t, err)
			require.False(t, again)

			now.Labels["brokering.liqo.io/virtual-node"] = "p1"
			_, found = Of(now)
			require.False(t, found, "it is not that of another VirtualNode, in the same second")
		})
	}
}

func TestTheMessageOfAProviderIsCut(t *testing.T) {
	client := fake.NewClientset(pod())
	long := Refusal{VirtualNode: "p1-gpu", Reason: Forbidden, Message: strings.Repeat("full\n", 1<<20), At: noon}
	reported, err := Report(t.Context(), client.CoreV1().Pods("ns"), pod(), long)
	require.NoError(t, err)
	require.True(t, reported)
	now, err := client.CoreV1().Pods("ns").Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	read, found := Of(now)
	require.True(t, found)
	require.Len(t, read.Message, untrusted.MaxText)
	require.True(t, strings.HasPrefix(read.Message, "full full "))

	reported, err = Report(t.Context(), client.CoreV1().Pods("ns"), now, long)
	require.NoError(t, err)
	require.False(t, reported, "it is the same")
}

func TestTheStatusIsPatchedForThisPodOnly(t *testing.T) {
	refused := pod(condition("p2", noon, corev1.ConditionTrue, "full"))
	client := fake.NewClientset(refused)
	_, err := Report(t.Context(), client.CoreV1().Pods("ns"), refused,
		Refusal{VirtualNode: "p1-gpu", Reason: QuotaExceeded, Message: "full", At: noon})
	require.NoError(t, err)
	patch := client.Actions()[0].(k8stesting.PatchAction)
	require.Equal(t, types.StrategicMergePatchType, patch.GetPatchType())
	require.Equal(t, "status", patch.GetSubresource())
	require.Contains(t, string(patch.GetPatch()), `"metadata":{"uid":"uid-a"}`)

	before, err := json.Marshal(refused)
	require.NoError(t, err)
	after, err := strategicpatch.StrategicMergePatch(before, patch.GetPatch(), &corev1.Pod{})
	require.NoError(t, err)
	var now corev1.Pod
	require.NoError(t, json.Unmarshal(after, &now))
	var kinds []corev1.PodConditionType
	for _, c := range now.Status.Conditions {
		kinds = append(kinds, c.Type)
	}
	require.ElementsMatch(t, []corev1.PodConditionType{"refused.brokering.liqo.io/p1-gpu", corev1.PodScheduled}, kinds,
		"the refusal by another VirtualNode is removed, what others wrote stays")
}

func TestTheTypeOfTheConditionIsAQualifiedName(t *testing.T) {
	longest := "a23456789-b23456789-c23456789-d23456789-e23456789-f23456789.123"
	require.Len(t, longest, validation.LabelValueMaxLength)
	require.Empty(t, validation.IsQualifiedName(string(conditionType(longest))))
}
