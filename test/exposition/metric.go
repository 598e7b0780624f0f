package exposition

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The components, as docs/metrics.md, the rules and the dashboard call them: the values of the label job.
const (
	Broker         = "liqo-broker"
	VirtualKubelet = "liqo-virtual-kubelet"
	Catalog        = "liqo-broker-catalog"
)

// Metric is what there is to know of a metric without its values.
type Metric struct {
	Name string
	// Type is counter, gauge, histogram or summary.
	Type string
	// Labels are sorted; le and quantile are not among them.
	Labels []string
	Help   string
}

// String is a line for people.
func (m Metric) String() string {
	return fmt.Sprintf("%s %s {%s} %s", m.Type, m.Name, strings.Join(m.Labels, ","), m.Help)
}

// Scraped reads a scrape, in Prometheus' text format: the metrics that have at least one value, by name.
func Scraped(text io.Reader) (map[string]Metric, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("exposition: %w", err)
	}
	metrics := make(map[string]Metric, len(families))
	for name, family := range families {
		metrics[name] = metricOf(family)
	}
	return metrics, nil
}

func metricOf(family *dto.MetricFamily) Metric {
	labels := map[string]bool{}
	for _, series := range family.GetMetric() {
		for _, label := range series.GetLabel() {
			labels[label.GetName()] = true
		}
	}
	return Metric{
		Name: family.GetName(), Type: strings.ToLower(family.GetType().String()), Help: family.GetHelp(),
		Labels: slices.Sorted(maps.Keys(labels)),
	}
}
