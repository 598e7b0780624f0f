package broker

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/offer"
	"github.com/capacitorset/liqo-broker-vk/pkg/reoffload"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// metrics are what the broker tells Prometheus; docs/metrics.md says of each what it is for. No label is the name of a
// pod or a namespace: consumers would choose how many series there are.
type metrics struct {
	decisions  *prometheus.CounterVec
	rejections *prometheus.CounterVec
	decision   prometheus.Histogram
	wait       prometheus.Histogram

	moves *prometheus.CounterVec
	move  prometheus.Histogram
	start prometheus.Histogram

	patches     *prometheus.HistogramVec
	patchErrors *prometheus.CounterVec

	policyValid *prometheus.GaugeVec
	policyPods  *prometheus.GaugeVec

	providers *providerMetrics
}

// What came of a decision.
const (
	outcomeAssigned     = "assigned"
	outcomeUnassignable = "unassignable"
	outcomeInvalid      = "invalid_criteria"
)

func newMetrics() *metrics {
	m := &metrics{
		decisions: counter("decisions_total",
			"Decisions about pods, by what came of them and the provider chosen.", "outcome", "provider"),
		rejections: counter("rejections_total",
			"Providers that did not fit a pod for which none did, by reason.", "reason"),
		decision: histogram("decision_duration_seconds",
			"Time to decide where a pod goes, without writing it.", prometheus.ExponentialBuckets(10e-6, 4, 9)),
		wait: histogram("assignment_wait_seconds",
			"Time from the binding of a pod to the node to its first assignment to a provider.",
			prometheus.ExponentialBuckets(0.005, 3, 12)),
		moves: counter("moves_total", "Pods moved away from where they were, by reason.", "reason"),
		move: histogram("move_duration_seconds",
			"Time from taking a pod away from a provider to assigning it to the next.",
			prometheus.ExponentialBuckets(0.05, 3, 10)),
		start: histogram("pod_start_seconds",
			"Time from the assignment of a pod to its being ready.", prometheus.ExponentialBuckets(0.25, 2, 12)),
		patches: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "liqo_broker", Name: "api_patch_duration_seconds",
			Help: "Time of the broker's patches, by resource.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}, []string{"resource"}),
		patchErrors: counter("api_patch_errors_total",
			"Patches of the broker that failed, by resource and reason.", "resource", "reason"),
		policyValid: gauge("policy_valid", "Whether a PlacementPolicy can be followed (1) or not (0).", "policy"),
		policyPods:  gauge("policy_pods", "Assigned pods that a PlacementPolicy is for.", "policy"),
		providers:   newProviderMetrics(),
	}
	m.begin()
	return m
}

// begin shows what can happen as 0 before it does: the first time would else be no increase.
func (m *metrics) begin() {
	for _, outcome := range []string{outcomeUnassignable, outcomeInvalid} {
		m.decisions.WithLabelValues(outcome, "")
	}
	for reason := scheduler.Disabled; reason <= scheduler.Failed; reason++ {
		m.rejections.WithLabelValues(reason.String())
	}
	for _, reason := range []moveReason{moveUnreachable, moveDrained, moveRefused, movePending, moveNoVirtualNode} {
		m.moves.WithLabelValues(string(reason))
	}
	for _, resource := range []string{"pods", "pods/status"} {
		m.patches.WithLabelValues(resource)
		m.patchErrors.WithLabelValues(resource, "Conflict") // It is the one that is no fault.
	}
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "liqo_broker", Name: name, Help: help}, labels)
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "liqo_broker", Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "liqo_broker", Name: name, Help: help, Buckets: buckets,
	})
}

// RegisterMetrics registers everything that the broker tells Prometheus, besides what controller-runtime does: for
// those who ask what there is. The registry shows a broker that has not begun.
func RegisterMetrics(registry prometheus.Registerer) error {
	b := &Broker{core: newCore(&Config{})}
	b.measure()
	return b.registerMetrics(registry)
}

// measure makes the metrics.
func (b *Broker) measure() {
	b.metrics, b.ipamMetrics = newMetrics(), ipam.NewMetrics()
	b.offerMetrics, b.namespaceMetrics = offer.NewMetrics(), reoffload.NewMetrics()
}

func (b *Broker) registerMetrics(registry prometheus.Registerer) error {
	return errors.Join(
		b.metrics.register(registry),
		b.registerBeliefs(registry),
		b.ipamMetrics.Register(registry),
		b.offerMetrics.Register(registry),
		b.namespaceMetrics.Register(registry),
		registry.Register(collectors.NewBuildInfoCollector()),
	)
}

func (m *metrics) register(registry prometheus.Registerer) error {
	all := []prometheus.Collector{
		m.decisions, m.rejections, m.decision, m.wait, m.moves, m.move, m.start, m.patches, m.patchErrors,
		m.policyValid, m.policyPods,
	}
	return registerAll(registry, append(all, m.providers.all()...)...)
}

// registerBeliefs registers what is read at each scrape.
func (b *Broker) registerBeliefs(registry prometheus.Registerer) error {
	read := func(name, help string, value func() int) prometheus.Collector {
		return belief{prometheus.NewDesc("liqo_broker_"+name, help, nil, nil), value}
	}
	return registerAll(registry,
		read("queue_length", "Pods that wait to be looked at.", b.podQueue.len),
		read("pods_assigned", "Pods of the node that are assigned to a provider.",
			func() int { n, _ := b.core.counts(); return n }),
		read("pods_unassigned", "Pods of the node for which no provider was found.",
			func() int { _, n := b.core.counts(); return n }),
		read("pods_moving", "Pods that were taken away from a provider and have no other yet.", b.core.moving),
		read("moves_delayed", "Pods that must leave their provider and wait for the rate limit of moves.",
			b.core.delayed),
		read("moves_suspended",
			"Whether nothing is moved away from lost providers, because the broker suspects itself (1), or not (0).",
			func() int { return number(b.core.suspects()) }),
	)
}

// belief is a gauge that is read when it is collected. A prometheus.GaugeFunc is read when it is written, by whom the
// collectors of all other metrics wait for, with locks: would it wait for what the broker believes, and the broker, with
// that locked, for one of those metrics, nobody would go on.
type belief struct {
	desc *prometheus.Desc
	read func() int
}

// Describe implements prometheus.Collector.
func (b belief) Describe(descs chan<- *prometheus.Desc) { descs <- b.desc }

// Collect implements prometheus.Collector.
func (b belief) Collect(metrics chan<- prometheus.Metric) {
	metrics <- prometheus.MustNewConstMetric(b.desc, prometheus.GaugeValue, float64(b.read()))
}

func registerAll(registry prometheus.Registerer, all ...prometheus.Collector) error {
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// number is 1 for true.
func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (m *metrics) decided(outcome, provider string, took time.Duration) {
	m.decisions.WithLabelValues(outcome, provider).Inc()
	m.decision.Observe(took.Seconds())
}

// rejected counts why no provider fits.
func (m *metrics) rejected(d *scheduler.Decision) {
	for i := range d.Verdicts {
		if reason := d.Verdicts[i].Filter; reason != scheduler.Passed {
			m.rejections.WithLabelValues(reason.String()).Inc()
		}
	}
}

func (m *metrics) patched(resource string, err error, took time.Duration) {
	m.patches.WithLabelValues(resource).Observe(took.Seconds())
	if err == nil {
		return
	}
	m.patchErrors.WithLabelValues(resource, reasonOf(err)).Inc()
}

// reasonOf is one of the reasons that Kubernetes has: admission webhooks may answer with a sentence, about a pod.
func reasonOf(err error) string {
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

// policy shows a PlacementPolicy.
func (m *metrics) policy(name string, valid bool, pods int32) {
	m.policyValid.WithLabelValues(name).Set(float64(number(valid)))
	m.policyPods.WithLabelValues(name).Set(float64(pods))
}

func (m *metrics) forgetPolicy(name string) {
	m.policyValid.DeleteLabelValues(name)
	m.policyPods.DeleteLabelValues(name)
}
