package exposition

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/accounting"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/providers"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
)

// registrations returns the functions with which the components register their metrics.
func registrations() map[string]func(prometheus.Registerer) error {
	return map[string]func(prometheus.Registerer) error{
		Broker: registerBroker, VirtualKubelet: registerVirtualKubelet,
		Catalog: func(r prometheus.Registerer) error {
			return middleware.NewMetrics().Register(r, func() int { return 0 })
		},
	}
}

// registerBroker registers the metrics of a broker that does not run.
func registerBroker(registry prometheus.Registerer) error {
	known := state.New(state.Config{})
	if _, err := broker.NewMetrics(registry, known, nil, &requeue.Queue{}, providers.New(providers.Config{State: known})); err != nil {
		return err
	}
	_, err := accounting.NewMetrics(registry)
	return err
}

// registerVirtualKubelet registers the metrics of a virtual kubelet that does not run.
func registerVirtualKubelet(registry prometheus.Registerer) error {
	if _, err := provider.NewMetrics(registry, ipam.NewClient(ipam.ClientConfig{})); err != nil {
		return err
	}
	return errors.Join(registry.Register(provider.PodsMetric(func() int { return 0 })), registry.Register(process.UnknownMetric(nil)))
}

// expose returns the exposition of all metrics that register registers. Metrics that have no value before an event get
// one, too.
func expose(register func(prometheus.Registerer) error) (string, error) {
	registry := prometheus.NewPedanticRegistry()
	if err := register(filling{registry}); err != nil {
		return "", err
	}
	families, err := registry.Gather()
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			return "", err
		}
	}
	return text.String(), nil
}

// filling is a registerer that creates one metric in each vector.
type filling struct{ *prometheus.Registry }

// MustRegister implements prometheus.Registerer.
func (f filling) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := f.Register(c); err != nil {
			panic(err)
		}
	}
}

// Register implements prometheus.Registerer.
func (f filling) Register(c prometheus.Collector) error {
	labels, err := labelsOf(c)
	if err != nil {
		return err
	}
	values := slices.Repeat([]string{"x"}, len(labels))
	switch vec := c.(type) {
	case *prometheus.CounterVec:
		vec.WithLabelValues(values...)
	case *prometheus.GaugeVec:
		vec.WithLabelValues(values...)
	case *prometheus.HistogramVec:
		vec.WithLabelValues(values...)
	default:
		if method := reflect.ValueOf(c).MethodByName("WithLabelValues"); method.IsValid() {
			return fmt.Errorf("a vector of type %T, of which no metric can be made here", c)
		}
		if empty(c) {
			return f.Registry.Register(described{c})
		}
	}
	return f.Registry.Register(c)
}

// empty reports whether a collector has no metrics.
func empty(c prometheus.Collector) bool {
	metrics := make(chan prometheus.Metric, 1000)
	c.Collect(metrics)
	return len(metrics) == 0
}

// described collects one metric for each description of a collector that creates its metrics on collection.
type described struct{ prometheus.Collector }

// Collect implements prometheus.Collector.
func (d described) Collect(metrics chan<- prometheus.Metric) {
	descs := make(chan *prometheus.Desc, 1000)
	d.Describe(descs)
	close(descs)
	for desc := range descs {
		kind := prometheus.GaugeValue
		if strings.Contains(desc.String(), `_total", `) {
			kind = prometheus.CounterValue
		}
		labels := strings.Split(variable.FindStringSubmatch(desc.String())[1], ",")
		metrics <- prometheus.MustNewConstMetric(desc, kind, 0, slices.Repeat([]string{"x"}, len(labels))...)
	}
}

// variable finds the labels in the description of a metric, because nothing else shows them.
var variable = regexp.MustCompile(`variableLabels: \{([^}]*)\}`)

// labelsOf returns the labels of a vector, all of whose metrics have the same description.
func labelsOf(c prometheus.Collector) ([]string, error) {
	described := make(chan *prometheus.Desc, 1000)
	c.Describe(described)
	close(described)
	desc, ok := <-described
	if !ok {
		return nil, nil
	}
	found := variable.FindStringSubmatch(desc.String())
	switch {
	case found == nil:
		return nil, fmt.Errorf("no labels in %s", desc)
	case found[1] == "":
		return nil, nil
	}
	return strings.Split(found[1], ","), nil
}
