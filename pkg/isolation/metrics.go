package isolation

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
)

// Metrics are the metrics of the isolation.
type Metrics struct{ failed *prometheus.GaugeVec }

// NewMetrics returns Metrics in a registry; nil means no registry.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	return &Metrics{failed: promauto.With(registry).NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "liqo_broker", Name: "isolation_failed",
		Help: "FirewallConfigurations of the isolation that the gateway of a consumer could not apply, or that could not be written.",
	}, []string{"consumer"})}
}

// notApplied reports whether a gateway has tried and failed to apply an object. Liqo has a condition for each name of a
// gateway, not for each of its pods (cmd/gateway/main.go), and keeps it after the gateway is deleted
// (pkg/firewall/firewallconfiguration_controller.go), so the newest condition counts.
func notApplied(object *networkingv1beta1.FirewallConfiguration) bool {
	var newest *networkingv1beta1.FirewallConfigurationStatusCondition
	for i := range object.Status.Conditions {
		c := &object.Status.Conditions[i]
		if c.Type == networkingv1beta1.FirewallConfigurationStatusConditionTypeApplied &&
			(newest == nil || newest.LastTransitionTime.Before(&c.LastTransitionTime)) {
			newest = c
		}
	}
	return newest != nil && newest.Status == metav1.ConditionFalse
}
