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

// leastShare is from how many requests a pod on a kind of them is shown.
const leastShare = 0.02

// counts are requests by what they ask for, as in "PATCH pods/status", and by the status code if they fail.
type counts map[string]float64

// requests is what the API server has answered since it started, by its own metric. Watches, which last, and leases, which depend on
// the time that passes rather than on pods, are left out.
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

// addRequests notes how many requests there were for each of n pods, and by what they asked for if that is wanted.
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

// patches are how many patches of pods the API server has answered within so many seconds, by that bound.
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

// boundOf returns the least bound within which a share of what came between two readings was answered.
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
