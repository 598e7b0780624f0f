package backoff

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

const (
	// longest is how many times the first delay the longest is: 5, 10, 20, 30 min with the default --refusal-memory.
	longest = 6
	// maxEntries bounds the annotation: of more VirtualNodes, those that may be tried first become others.
	maxEntries = 64
	// others is the key of a try that is for all VirtualNodes without an entry. Readers that do not know it find no VirtualNode
	// of that name.
	others = ""
	// maxLength is how many bytes of an annotation are read. The broker writes less.
	maxLength = 32 << 10
)

// Try is what became of a pod at one VirtualNode, which has started no container of it.
type Try struct {
	// Count is how often the pod was assigned there.
	Count int `json:"count"`
	// Reason is why it left the last time, for people.
	Reason string `json:"reason"`
	// Until is when the pod may be assigned there again.
	Until time.Time `json:"until"`
}

// Tries are those of a pod, by VirtualNode.
type Tries map[string]Try

// Of returns the tries of a pod; none if the annotation cannot be read.
func Of(pod *corev1.Pod) Tries {
	text := pod.Annotations[v1alpha1.TriesAnnotation]
	var tries Tries
	if text == "" || len(text) > maxLength || json.Unmarshal([]byte(text), &tries) != nil {
		return nil
	}
	return tries
}

// After returns the tries with one more, which ended at now. The delay until the next one there doubles from the first
// on. Once a pod was tried at one of them again, the delay is for all: otherwise it would go from one to the other
// without a pause. So it is for those without an entry, once there are too many entries: one of them was always tried before.
func (t Tries) After(virtualNode, reason string, now time.Time, first time.Duration) Tries {
	before, known := t[virtualNode]
	if !known {
		before = t[others]
	}
	count := max(0, before.Count) + 1
	delay := first
	for i := 1; i < count && delay < longest*first; i++ {
		delay *= 2
	}
	until := now.Add(min(delay, longest*first)).UTC().Truncate(time.Second)
	all := Tries{}
	for other, try := range t {
		if count > 1 && try.Until.Before(until) {
			try.Until = until
		}
		all[other] = try
	}
	all[virtualNode] = Try{Count: count, Reason: reason, Until: until}
	all.bound(virtualNode)
	return all
}

// bound makes the entries beyond maxEntries one, others. The last VirtualNode keeps its own.
func (t Tries) bound(last string) {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(t)), func(name string) bool { return name == others || name == last })
	slices.SortStableFunc(names, func(a, b string) int { return t[a].Until.Compare(t[b].Until) })
	for _, soonest := range names[:max(0, len(names)+1-maxEntries)] {
		try, merged := t[soonest], t[others]
		if try.Until.Before(merged.Until) {
			try.Until = merged.Until
		}
		try.Count = max(try.Count, merged.Count)
		t[others] = try
		delete(t, soonest)
	}
}

// Annotation returns the value of the annotation.
func (t Tries) Annotation() string {
	text, _ := json.Marshal(t) // Numbers, texts and times of this century can be written.
	return string(text)
}

// Until returns, by VirtualNode, until when the pod is not assigned there, and by "" the same for all that it does not name;
// nil if it was tried nowhere.
func (t Tries) Until() map[string]time.Time {
	if len(t) == 0 {
		return nil
	}
	until := make(map[string]time.Time, len(t))
	for virtualNode, try := range t {
		until[virtualNode] = try.Until
	}
	return until
}

// Describe returns where the pod was tried, why it left, and when it is tried again at one of them: "was tried at p1,
// p2: not started within 2m; next try not before 2026-03-01T12:05:00Z". It is "" if the pod was tried nowhere.
func (t Tries) Describe(now time.Time) string {
	if len(t) == 0 {
		return ""
	}
	at, next := map[string][]string{}, time.Time{}
	names := slices.Sorted(maps.Keys(t))
	if names[0] == others {
		names = append(names[1:], others)
	}
	for _, virtualNode := range names {
		try := t[virtualNode]
		if virtualNode == others {
			virtualNode = "others"
		}
		at[try.Reason] = append(at[try.Reason], virtualNode)
		if try.Until.After(now) && (next.IsZero() || try.Until.Before(next)) {
			next = try.Until
		}
	}
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(at)) {
		parts = append(parts, fmt.Sprintf("at %s: %s", strings.Join(at[reason], ", "), reason))
	}
	text := "was tried " + strings.Join(parts, "; ")
	if !next.IsZero() {
		text += "; next try not before " + next.UTC().Format(time.RFC3339)
	}
	return text
}
