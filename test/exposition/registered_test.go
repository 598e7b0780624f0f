package exposition

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider"
)

// registrations are how the components register their metrics.
func registrations() map[string]func(prometheus.Registerer) error {
	return map[string]func(prometheus.Registerer) error{
		Broker: broker.RegisterMetrics, VirtualKubelet: provider.RegisterMetrics, Catalog: catalog.RegisterMetrics,
	}
}

// expose is the exposition of everything that register registers, with a value even of those metrics that have none
// before something happens.
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

// filling is a registerer that has each vector of metrics make one.
type filling struct{ *prometheus.Registry }

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
			return fmt.Errorf("a vector of type %T: nobody knows how to make one of it", c)
		}
	}
	return f.Registry.Register(c)
}

// variable finds the labels in the description of a metric, which has no other way to tell them.
var variable = regexp.MustCompile(`variableLabels: \{([^}]*)\}`)

// labelsOf are the labels of a vector, all of whose metrics have the same description.
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
