package podpatch

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPatchesThatFailAreCountedByReason(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	for _, err := range []error{
		nil, errors.New("connection refused"), kerrors.NewForbidden(corev1.Resource("pods"), "web", nil),
		&kerrors.StatusError{ErrStatus: metav1.Status{Reason: "pod web is not nice"}},
	} {
		m.observe("pods", err, time.Millisecond)
	}
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP liqo_broker_api_patch_errors_total Patches of the broker that failed, by resource and reason.
# TYPE liqo_broker_api_patch_errors_total counter
liqo_broker_api_patch_errors_total{reason="Conflict",resource="pods"} 0
liqo_broker_api_patch_errors_total{reason="Conflict",resource="pods/status"} 0
liqo_broker_api_patch_errors_total{reason="Forbidden",resource="pods"} 1
liqo_broker_api_patch_errors_total{reason="Other",resource="pods"} 1
liqo_broker_api_patch_errors_total{reason="Unknown",resource="pods"} 1
`), "liqo_broker_api_patch_errors_total"))
}
