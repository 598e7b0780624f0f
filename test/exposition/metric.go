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

// The components, as docs/metrics.md, the rules and the dashboard name them: the values of the label job.
const (
	Broker         = "liqo-broker"
	VirtualKubelet = "liqo-virtual-kubelet"
	Catalog        = "liqo-broker-catalog"
)

// metric is the description of a metric, without its values.
type metric struct {
	name string
	// kind is counter, gauge, histogram or summary.
	kind string
	// labels are sorted. They do not include le of a histogram and quantile of a summary.
	labels []string
	help   string
}

// parseScrape reads a scrape, in Prometheus' text format: the metrics that have at least one value, by name.
func parseScrape(text io.Reader) (map[string]metric, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("exposition: %w", err)
	}
	metrics := make(map[string]metric, len(families))
	for name, family := range families {
		metrics[name] = metricOf(family)
	}
	return metrics, nil
}

func metricOf(family *dto.MetricFamily) metric {
	labels := map[string]bool{}
	for _, series := range family.GetMetric() {
		for _, label := range series.GetLabel() {
			labels[label.GetName()] = true
		}
	}
	return metric{
		name: family.GetName(), kind: strings.ToLower(family.GetType().String()), help: family.GetHelp(),
		labels: slices.Sorted(maps.Keys(labels)),
	}
}
