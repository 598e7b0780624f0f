package kubelet

import (
	"bytes"
	"context"
	"maps"
	"net/url"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scrape returns what Liqo's metric agents at all providers measure, as one text. A provider that does not answer is left
// out.
func (s *server) scrape(ctx context.Context, uri *url.URL) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	type answer struct {
		text []byte
		err  error
	}
	scrapers := s.Providers.Scrapers(ctx)
	answers := make(chan answer, len(scrapers))
	for _, scrape := range scrapers {
		go func() {
			text, err := scrape(ctx, uri)
			answers <- answer{text: text, err: err}
		}()
	}
	merged := map[string]*dto.MetricFamily{}
	for range scrapers {
		got := <-answers
		if got.err != nil {
			s.Log.V(1).Info("Cannot scrape a provider", "because", got.err.Error())
			continue
		}
		if err := merge(merged, got.text); err != nil {
			s.Log.Info("A provider's metrics are not valid", "because", err.Error())
		}
	}
	return encode(merged)
}

// merge adds the metrics of a text in Prometheus' format.
func merge(into map[string]*dto.MetricFamily, text []byte) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return err
	}
	for name, family := range families {
		if known, ok := into[name]; ok {
			known.Metric = append(known.Metric, family.Metric...)
			continue
		}
		into[name] = family
	}
	return nil
}

// encode writes metric families in Prometheus' text format, by name.
func encode(families map[string]*dto.MetricFamily) ([]byte, error) {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if _, err := expfmt.MetricFamilyToText(&out, families[name]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
