package podpatch

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metrics are the metrics of writes; docs/metrics.md describes them.
type Metrics struct {
	patches *prometheus.HistogramVec
	errors  *prometheus.CounterVec
}

// NewMetrics returns Metrics of a registry; with nil they are not registered.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	auto := promauto.With(registry)
	m := &Metrics{
		patches: auto.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "liqo_broker", Name: "api_patch_duration_seconds",
			Help: "Time of the broker's patches, by resource.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}, []string{"resource"}),
		errors: auto.NewCounterVec(prometheus.CounterOpts{
			Namespace: "liqo_broker", Name: "api_patch_errors_total",
			Help: "Patches of the broker that failed, by resource and reason.",
		}, []string{"resource", "reason"}),
	}
	for _, resource := range []string{"pods", "pods/status"} {
		m.patches.WithLabelValues(resource)
		m.errors.WithLabelValues(resource, "Conflict") // It is expected.
	}
	return m
}

func (m *Metrics) observe(resource string, err error, took time.Duration) {
	m.patches.WithLabelValues(resource).Observe(took.Seconds())
	if err != nil {
		m.errors.WithLabelValues(resource, errorReason(err)).Inc()
	}
}

// errorReason returns one of Kubernetes' reasons: admission webhooks may answer with a sentence about a pod.
func errorReason(err error) string {
	switch reason := kerrors.ReasonForError(err); reason {
	case metav1.StatusReasonUnknown:
		return "Unknown"
	case metav1.StatusReasonUnauthorized, metav1.StatusReasonForbidden, metav1.StatusReasonNotFound,
		metav1.StatusReasonAlreadyExists, metav1.StatusReasonConflict, metav1.StatusReasonGone, metav1.StatusReasonInvalid,
		metav1.StatusReasonServerTimeout, metav1.StatusReasonTimeout, metav1.StatusReasonTooManyRequests,
		metav1.StatusReasonBadRequest, metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonInternalError,
		metav1.StatusReasonServiceUnavailable:
		return string(reason)
	default:
		return "Other"
	}
}
