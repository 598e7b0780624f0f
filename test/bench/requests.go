package main

import (
	"bytes"
	"context"
	"fmt"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// requests is how many requests the API server has answered since it started,
// by its own metric. Watches, which last, and leases, which depend on the time
// that passes rather than on pods, are left out.
func requests(ctx context.Context, c *sandbox.Cluster) (float64, error) {
	text, err := c.Kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	family, ok := families["apiserver_request_total"]
	if !ok {
		return 0, fmt.Errorf("%s has no apiserver_request_total", c.Name)
	}
	var sum float64
	for _, m := range family.GetMetric() {
		if label(m, "verb") == "WATCH" || label(m, "resource") == "leases" {
			continue
		}
		sum += m.GetCounter().GetValue()
	}
	return sum, nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
