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
	// longest is the longest delay as a multiple of the first: 5, 10, 20, 30 min with the default --refusal-memory.
	longest = 6
	// maxEntries bounds the annotation: with more VirtualNodes, the entries that end first are merged into others.
	maxEntries = 64
	// others is the key of a try that is for all VirtualNodes without an entry. Readers that do not know it find no
	// VirtualNode of that name.
	others = ""
	// maxLength is the number of bytes of an annotation that are read. The broker writes less.
	maxLength = 32 << 10
)

// Try is the result of the assignments of a pod to one VirtualNode, which has started no container of it.
type Try struct {
	// Count is the number of times that the pod was assigned there.
	Count int `json:"count"`
	// Reason is the reason why it was moved away the last time, for people.
	Reason string `json:"reason"`
	// Until is the time when the pod may be assigned there again.
	Until time.Time `json:"until"`
}

// Tries are the tries of a pod, by VirtualNode.
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

// After returns the tries with one more, which ended at now. The delay until the next try at that VirtualNode is first,
// and doubles with each try. Once a VirtualNode was tried again, the delay applies to all entries: otherwise the pod
// would move from one to the other without a pause. After entries were merged into others, a try at a VirtualNode
// without an entry also counts as repeated, because one of them was always tried before.
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

// bound merges the entries beyond maxEntries into one, others. The last VirtualNode keeps its own.
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

// Until returns, by VirtualNode, the end of the pod's back-off there, and by "" the end for all VirtualNodes without an
// entry; nil if the pod was tried nowhere.
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

// Describe returns the VirtualNodes where the pod was tried, the reason why it was moved away, and the time of the next
// try: "was tried at p1, p2: not started within 2m; next try not before 2026-03-01T12:05:00Z". It is "" if the pod was
// tried nowhere.
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
