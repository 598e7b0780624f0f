package untrusted

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
)

// maxWord bounds the short texts of an event, as events.k8s.io/v1 does (bytes).
const maxWord = 128

// Event returns an event of another cluster, or with texts of one, whose texts can be shown, and are cut to the API
// server's limits (events.k8s.io/v1); the given event is not changed. Events of the core API (v1) have no limits there.
func Event(event *corev1.Event) *corev1.Event {
	out := event.DeepCopy()
	out.Message, out.InvolvedObject.FieldPath = Text(out.Message), Text(out.InvolvedObject.FieldPath)
	for _, word := range []*string{
		&out.Reason, &out.Type, &out.Action, &out.Source.Component, &out.Source.Host, &out.ReportingController, &out.ReportingInstance,
	} {
		*word = Cut(Text(*word), maxWord)
	}
	return out
}

// EventSink is a record.EventSink that writes the result of Event. The errors that Liqo writes into events quote
// answers of the other cluster.
type EventSink struct{ record.EventSink }

// Create implements record.EventSink.
func (s EventSink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.EventSink.Create(Event(event))
}

// Update implements record.EventSink.
func (s EventSink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.EventSink.Update(Event(event))
}

// Patch implements record.EventSink.
func (s EventSink) Patch(event *corev1.Event, patch []byte) (*corev1.Event, error) {
	var changes map[string]any
	if err := json.Unmarshal(patch, &changes); err != nil {
		return nil, err
	}
	if message, ok := changes["message"].(string); ok {
		changes["message"] = Text(message)
	}
	patch, err := json.Marshal(changes)
	if err != nil {
		return nil, err
	}
	return s.EventSink.Patch(event, patch)
}

// Recorder is a record.EventRecorder whose messages pass through Text. Messages quote annotations of tenants, and
// answers of other clusters; events of the core API (v1) have no limits.
type Recorder struct{ record.EventRecorder }

// Event implements record.EventRecorder.
func (r Recorder) Event(object runtime.Object, eventtype, reason, message string) {
	r.EventRecorder.Event(object, eventtype, reason, Text(message))
}

// Eventf implements record.EventRecorder.
func (r Recorder) Eventf(object runtime.Object, eventtype, reason, format string, args ...any) {
	r.Event(object, eventtype, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf implements record.EventRecorder.
func (r Recorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, format string, args ...any) {
	r.EventRecorder.AnnotatedEventf(object, annotations, eventtype, reason, "%s", Text(fmt.Sprintf(format, args...)))
}
