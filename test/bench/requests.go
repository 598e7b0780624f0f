package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// leastShare is the number of requests per pod from which a kind of request is shown.
const leastShare = 0.02

// counts is the number of requests by verb and resource, as in "PATCH pods/status", and by the status code if they
// fail.
type counts map[string]float64

// requests returns the number of requests that the API server has answered since it started, from its own metrics.
// Watches are left out because they are long-running, and leases because they depend on time rather than on pods.
func requests(ctx context.Context, c *sandbox.Cluster) (counts, error) {
	family, err := metric(ctx, c, "apiserver_request_total")
	if err != nil {
		return nil, err
	}
	all := counts{}
	for _, m := range family.GetMetric() {
		verb, of := label(m, "verb"), label(m, "resource")
		if verb == "WATCH" || of == "leases" {
			continue
		}
		if sub := label(m, "subresource"); sub != "" {
			of += "/" + sub
		}
		if code := label(m, "code"); code >= "400" {
			of += " " + code
		}
		all[verb+" "+of] += m.GetCounter().GetValue()
	}
	return all, nil
}

// addRequests records the number of requests per pod for n pods, and, with -requests, for each kind of request.
func (b *bench) addRequests(r *report, of side, name string, before, after counts, n int) *figure {
	all, shares := 0.0, counts{}
	for kind := range after {
		shares[kind] = (after[kind] - before[kind]) / float64(n)
		all += shares[kind]
	}
	f := r.add(of, name, "", all)
	for _, kind := range slices.Sorted(maps.Keys(shares)) {
		if b.byKind && shares[kind] >= leastShare {
			r.add(of, name+": "+kind, "", shares[kind])
		}
	}
	return f
}

// patches returns how many patches of pods the API server has answered within each bound of its histogram, in seconds.
func patches(ctx context.Context, c *sandbox.Cluster) (map[float64]uint64, error) {
	family, err := metric(ctx, c, "apiserver_request_duration_seconds")
	if err != nil {
		return nil, err
	}
	within := map[float64]uint64{}
	for _, m := range family.GetMetric() {
		if label(m, "verb") != "PATCH" || label(m, "resource") != "pods" || label(m, "subresource") != "" {
			continue
		}
		for _, b := range m.GetHistogram().GetBucket() {
			if bound := b.GetUpperBound(); !math.IsInf(bound, 0) {
				within[bound] += b.GetCumulativeCount()
			}
		}
	}
	return within, nil
}

// boundOf returns the smallest bound within which the given share of the requests between two readings was answered.
func boundOf(before, after map[float64]uint64, share float64) float64 {
	bounds := slices.Sorted(maps.Keys(after))
	if len(bounds) == 0 {
		return 0
	}
	last := bounds[len(bounds)-1]
	all := after[last] - before[last]
	for _, bound := range bounds {
		if float64(after[bound]-before[bound]) >= share*float64(all) {
			return bound
		}
	}
	return last
}

// metric returns a metric of the API server.
func metric(ctx context.Context, c *sandbox.Cluster, name string) (*dto.MetricFamily, error) {
	text, err := c.Kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	family, ok := families[name]
	if !ok {
		return nil, fmt.Errorf("%s has no %s", c.Name, name)
	}
	return family, nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
