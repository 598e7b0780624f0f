package chaos

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
)

// No process has two faults at a time: the end of the first would end the other.
func TestFaultsOfOneProcessFollowEachOther(t *testing.T) {
	histories := []*History{Short("short")}
	for seed := range uint64(500) {
		histories = append(histories, Random(seed, 3))
	}
	for _, h := range histories {
		until := map[string]time.Duration{}
		faults := slices.Clone(h.faults)
		slices.SortFunc(faults, func(a, b planned) int { return int(a.at - b.at) })
		for _, f := range faults {
			kind, known := kinds()[f.kind]
			require.True(t, known, f.kind)
			for _, on := range kind.on(f.provider) {
				assert.GreaterOrEqual(t, f.at, until[on], "%s of %s: two faults of %s", f.kind, h.Name, on)
				until[on] = f.at + f.takes
			}
		}
	}
}

func TestASeedIsAHistory(t *testing.T) {
	assert.Equal(t, Random(7, 3).faults, Random(7, 3).faults)
	assert.NotEqual(t, Random(7, 3).faults, Random(8, 3).faults)
}

// ready returns a change of a pod in the broker's cluster that sets its Ready condition.
func ready(at time.Time, name string, is corev1.ConditionStatus) judge.Change {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}
	return judge.Change{At: at, Before: pod, After: pod}
}

func TestItIsMeasuredWhenTheLastPodIsReadyAgain(t *testing.T) {
	began := time.Now()
	record := &judge.Record{Faults: []judge.Fault{{From: began}}}
	record.Home.Pods = []judge.Change{
		ready(began.Add(-time.Second), "web", corev1.ConditionFalse), ready(began.Add(time.Second), "web", corev1.ConditionTrue),
	}
	assert.Zero(t, again(record), "it was not Ready before")
	record.Home.Pods = append(record.Home.Pods,
		ready(began.Add(5*time.Second), "web", corev1.ConditionFalse), ready(began.Add(23*time.Second), "web", corev1.ConditionTrue))
	assert.InDelta(t, 23, again(record), 0.01)
}

// A late answer while the broker's API server is frozen is caused by the fault. A late answer at another time means
// that the machine is too slow.
func TestTheMachineIsTooSlowWithoutAFaultOnly(t *testing.T) {
	began := time.Now()
	r := &recorder{faults: []judge.Fault{
		{Kind: "home hangs", From: began, Until: began.Add(10 * time.Second)},
		{Kind: "provider hangs", From: began.Add(20 * time.Second), Until: began.Add(60 * time.Second)},
	}}
	r.note(began.Add(-time.Second), 9*time.Second)
	r.note(began.Add(11*time.Second), 5*time.Second)
	assert.Zero(t, r.slowest)
	r.note(began.Add(30*time.Second), 6*time.Second)
	assert.Equal(t, 6*time.Second, r.slowest)
}

func TestAHistoryOfASlowMachineIsNotCounted(t *testing.T) {
	all := Results{
		{Name: "a", Kind: "drain", Pods: 60, RecoverySeconds: 4, AgainSeconds: 5},
		{Name: "b", Kind: "drain", Pods: 60, RecoverySeconds: 2, AgainSeconds: 7},
		{Name: "c", Kind: "drain", Pods: 60, RecoverySeconds: 99, Violations: []string{"the Node is not Ready"}, TooSlow: true},
	}
	assert.False(t, all[2].Violated())
	s := all.Summary()
	assert.Equal(t, 2, s.Histories)
	assert.Equal(t, 1, s.NotJudged)
	assert.Zero(t, s.Violations)
	assert.Equal(t, Alone{2, Quantiles{7, 7, 7, 7}, Quantiles{4, 4, 4, 4}}, s.Alone["drain"])
	var text strings.Builder
	all.Print(&text)
	assert.Contains(t, text.String(), "1 more were not checked")
}
