package backoff

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) // A constant, were there any of time.

func annotated(value string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.TriesAnnotation: value}}}
}

func TestTheDelayGrowsAndIsBounded(t *testing.T) {
	var tries Tries
	for i, minutes := range []int{5, 10, 20, 30, 30, 30} {
		tries = Of(annotated(tries.After("p1", "not started within 2m", noon, 5*time.Minute).Annotation()))
		require.Equal(t, Tries{"p1": {
			Count: i + 1, Reason: "not started within 2m", Until: noon.Add(time.Duration(minutes) * time.Minute),
		}}, tries)
	}
	tries["p1"] = Try{Count: 1 << 60, Until: noon}
	require.Equal(t, noon.Add(30*time.Minute), tries.After("p1", "", noon, 5*time.Minute)["p1"].Until)
	tries["p1"] = Try{Count: -1}
	require.Equal(t, 1, tries.After("p1", "", noon, 5*time.Minute)["p1"].Count)
}

// With many providers the first one could be tried again as soon as the last one was: the pod would be tried without a
// pause.
func TestAPodWaitsOnceItWasTriedEverywhere(t *testing.T) {
	var tries Tries
	now := noon
	for _, at := range []string{"p1", "p2", "p3", "p4"} {
		tries = tries.After(at, "", now, 5*time.Minute)
		require.Equal(t, now.Add(5*time.Minute), tries[at].Until)
		now = now.Add(2 * time.Minute)
	}
	require.True(t, tries["p1"].Until.Before(now))
	tries = tries.After("p1", "", now, 5*time.Minute)
	for at, try := range tries {
		require.Equal(t, now.Add(10*time.Minute), try.Until, at)
	}
	require.Equal(t, 1, tries["p2"].Count)
}

func TestTheAnnotationIsBounded(t *testing.T) {
	var tries Tries
	for i := range 3 * maxEntries {
		name := fmt.Sprintf("%s-%03d", strings.Repeat("p", 59), i)
		tries = tries.After(name, "refused: NamespaceNotOffloaded", noon.Add(time.Duration(i)*time.Second), time.Hour)
	}
	require.Len(t, tries, maxEntries+1, "and the others")
	require.Contains(t, tries, strings.Repeat("p", 59)+"-191", "the last ones are kept")
	require.Contains(t, tries.Describe(noon), "-191, others: refused: NamespaceNotOffloaded; next try not before ")
	require.Less(t, len(tries.Annotation()), maxLength)
	require.Equal(t, tries, Of(annotated(tries.Annotation())))
}

// Every provider of a big federation rejects the pod at once, for example by an admission policy of its own. The tries
// become less and less frequent.
func TestAPodThatManyRefuseIsTriedLessAndLess(t *testing.T) {
	for _, providers := range []int{maxEntries, maxEntries + 1, 100} {
		t.Run(fmt.Sprint(providers), func(t *testing.T) {
			var tries Tries
			tried, again := 0, 0
			for second := range 3600 {
				now, until := noon.Add(time.Duration(second)*time.Second), tries.Until()
				for i := range providers {
					name := fmt.Sprintf("p%03d", i)
					delayed, known := until[name]
					if !known {
						delayed = until[others]
					}
					if !now.Before(delayed) {
						tries = tries.After(name, "refused: Forbidden", now, 5*time.Minute)
						tried++
						again += min(1, tries[name].Count-1)
						break
					}
				}
			}
			require.Less(t, tried, 2*maxEntries, "in an hour")
			require.Greater(t, tried, maxEntries)
			require.Greater(t, again, 0, "they count as one failure of the provider")
		})
	}
}

// It would count as its first try there, and as a failure of that provider, each time.
func TestTheLastTryIsKept(t *testing.T) {
	full := Tries{}
	for i := range maxEntries {
		full[fmt.Sprintf("p%03d", i)] = Try{Count: 1, Until: noon.Add(time.Hour)}
	}
	tries := full.After("last", "", noon, time.Minute)
	require.Equal(t, 1, tries["last"].Count)
	require.Equal(t, noon.Add(time.Hour), tries[others].Until)
	require.NotContains(t, tries, "p000")
	require.Equal(t, 2, tries.After("p000", "", noon, time.Minute)["p000"].Count)
}

func TestAnAnnotationThatCannotBeReadIsNone(t *testing.T) {
	for _, value := range []string{"", "p1", `{"p1":1}`, `[]`, "{" + strings.Repeat(" ", maxLength) + "}"} {
		require.Empty(t, Of(annotated(value)), value)
	}
	require.Nil(t, Of(&corev1.Pod{}).Until())
	require.Empty(t, Of(&corev1.Pod{}).Describe(noon))
}

func TestTriesAreDescribed(t *testing.T) {
	tries := Tries(nil).
		After("p2", "not started within 2m", noon, 5*time.Minute).
		After("p1", "not started within 2m", noon.Add(-time.Minute), 5*time.Minute).
		After("p3", "refused: QuotaExceeded", noon.Add(-time.Hour), 5*time.Minute)
	require.Equal(t, "was tried at p1, p2: not started within 2m; at p3: refused: QuotaExceeded; next try not before 2026-03-01T12:04:00Z",
		tries.Describe(noon))
	require.Equal(t, "was tried at p1, p2: not started within 2m; at p3: refused: QuotaExceeded", tries.Describe(noon.Add(time.Hour)))
	require.Equal(t, noon.Add(4*time.Minute), tries.Until()["p1"])
}
