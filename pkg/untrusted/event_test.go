package untrusted

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

const hostile = "\x1b[2Ja\x00\r\u202e\u200b\u009b<b>"

func TestTheTextsOfAnEventCanBeShown(t *testing.T) {
	event := &corev1.Event{
		Message: hostile, Reason: hostile, Type: hostile, Action: hostile, ReportingController: hostile, ReportingInstance: hostile,
		Source:         corev1.EventSource{Component: strings.Repeat("x", 1000), Host: hostile},
		InvolvedObject: corev1.ObjectReference{FieldPath: hostile, Name: "pod"},
	}
	before := event.DeepCopy()
	got := Event(event)
	require.Equal(t, before, event, "the original stays as it is")
	const shown = " [2Ja     <b>"
	require.Equal(t, &corev1.Event{
		Message: shown, Reason: shown, Type: shown, Action: shown, ReportingController: shown, ReportingInstance: shown,
		Source:         corev1.EventSource{Component: strings.Repeat("x", maxWord-3) + "…", Host: shown},
		InvolvedObject: corev1.ObjectReference{FieldPath: shown, Name: "pod"},
	}, got)
}

// sink keeps the events that a recorder writes.
type sink struct {
	record.EventSink
	patches []string
}

func (s *sink) Patch(event *corev1.Event, patch []byte) (*corev1.Event, error) {
	s.patches = append(s.patches, string(patch))
	return event, nil
}

func TestRecordedEventsCanBeShown(t *testing.T) {
	client := fake.NewClientset()
	kept := EventSink{EventSink: &corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")}}
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(kept)
	events, err := client.CoreV1().Events("ns").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer events.Stop()
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace = "pod", "ns"
	broadcaster.NewRecorder(scheme(t), corev1.EventSource{Component: "virtual-kubelet"}).
		Event(pod, corev1.EventTypeWarning, "FailedReflection", errors.New("quoted: "+hostile).Error())
	written := (<-events.ResultChan()).Object.(*corev1.Event)
	require.Equal(t, "quoted:  [2Ja     <b>", written.Message)

	patched := &sink{}
	_, err = EventSink{EventSink: patched}.Patch(written, []byte(`{"count":7,"message":"\u001b[2Jb"}`))
	require.NoError(t, err)
	_, err = EventSink{EventSink: patched}.Patch(written, []byte(`{"count":8}`))
	require.NoError(t, err)
	require.Equal(t, []string{`{"count":7,"message":" [2Jb"}`, `{"count":8}`}, patched.patches)

	_, err = EventSink{EventSink: &corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")}}.
		Update(&corev1.Event{ObjectMeta: written.ObjectMeta, Message: hostile})
	require.NoError(t, err)
	require.Equal(t, " [2Ja     <b>", (<-events.ResultChan()).Object.(*corev1.Event).Message)
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(s))
	return s
}

func TestRecordedMessagesAreCut(t *testing.T) {
	fake := record.NewFakeRecorder(3)
	recorder, long := Recorder{fake}, strings.Repeat("\x01", 250_000)
	recorder.Event(&corev1.Pod{}, "Warning", "Reason", long)
	recorder.Eventf(&corev1.Pod{}, "Warning", "Reason", "%s", long)
	recorder.AnnotatedEventf(&corev1.Pod{}, nil, "Warning", "Reason", "%s", long)
	for range 3 {
		require.LessOrEqual(t, len(<-fake.Events), MaxText+len("Warning Reason map[]"))
	}
}
