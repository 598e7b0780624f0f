package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// asked are the labels that queries use, by job and metric.
type asked map[string]map[string][]string

// finder finds the metrics and labels that expressions use.
type finder struct {
	// records has the expressions of recording rules, by the name of the recorded metric.
	records map[string]string
	found   asked
}

func newFinder(rules ruleFile) *finder {
	f := &finder{records: map[string]string{}, found: asked{}}
	for _, r := range rules.all() {
		if r.Record != "" {
			f.records[r.Record] = r.Expr
		}
	}
	return f
}

// find adds the metrics and labels of an expression. Labels that other queries use of its result are attributed to all
// metrics in it, so that recorded metrics are resolved.
func (f *finder) find(q query, inherited ...string) error {
	expr, err := parser.ParseExpr(q.expr)
	if err != nil {
		return fmt.Errorf("%s: %w: %s", q.where, err, q.expr)
	}
	var fault error
	parser.Inspect(expr, func(node parser.Node, above []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok && fault == nil {
			fault = f.selector(q, selector, append(groupings(above), inherited...))
		}
		return nil
	})
	return fault
}

func (f *finder) selector(q query, s *parser.VectorSelector, needed []string) error {
	jobs := []string{}
	for _, m := range s.LabelMatchers {
		switch m.Name {
		case model.MetricNameLabel:
		case "job":
			jobs = strings.Split(m.Value, "|")
		default:
			needed = append(needed, m.Name)
		}
	}
	if expr, recorded := f.records[s.Name]; recorded {
		return f.find(query{q.where + ", record " + s.Name, expr}, needed...)
	}
	if s.Name == "up" {
		return nil // Prometheus makes it.
	}
	if len(jobs) == 0 {
		job := jobOf(s.Name)
		if job == "" {
			return fmt.Errorf("%s: %s is not ours, and the query does not say which job it is of: %s", q.where, s.Name, q.expr)
		}
		jobs = []string{job}
	}
	for _, job := range jobs {
		f.add(job, familyOf(s.Name), needed)
	}
	return nil
}

func (f *finder) add(job, metric string, needed []string) {
	if f.found[job] == nil {
		f.found[job] = map[string][]string{}
	}
	all := slices.DeleteFunc(slices.Concat(f.found[job][metric], needed), ofTarget)
	slices.Sort(all)
	f.found[job][metric] = append([]string{}, slices.Compact(all)...)
}

// groupings returns the labels by which the parents of an expression group and match.
func groupings(above []parser.Node) []string {
	var all []string
	for _, node := range above {
		switch e := node.(type) {
		case *parser.AggregateExpr:
			all = append(all, e.Grouping...)
		case *parser.BinaryExpr:
			if e.VectorMatching != nil && e.VectorMatching.On {
				all = append(all, e.VectorMatching.MatchingLabels...)
			}
		}
	}
	return all
}

// ofTarget reports whether a label comes from Prometheus or from the metric's type.
func ofTarget(label string) bool {
	return slices.Contains([]string{"job", "instance", "pod", "namespace", "container", "endpoint", "le", "quantile"}, label)
}

// familyOf returns the name of the metric that a series of a histogram belongs to.
func familyOf(series string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		series = strings.TrimSuffix(series, suffix)
	}
	return series
}

// jobOf returns the component that exposes a metric, by its name; "" if it is not ours.
func jobOf(metric string) string {
	for _, of := range []struct{ prefix, job string }{
		{"liqo_broker_vk_", "liqo-virtual-kubelet"},
		{"liqo_virtual_kubelet_", "liqo-virtual-kubelet"},
		{"liqo_broker_", "liqo-broker"},
		{"liqo_catalog_", "liqo-broker-catalog"},
	} {
		if strings.HasPrefix(metric, of.prefix) {
			return of.job
		}
	}
	return ""
}

// uses is the input of test/exposition.
type uses struct {
	// Asked is for the rules and the dashboard, Examples for the document.
	Asked    asked `json:"asked"`
	Examples asked `json:"examples"`
}

// uses finds all queries, and returns all faults at once.
func (r repository) uses() (uses, []error) {
	rules, err := r.rules()
	if err != nil {
		return uses{}, []error{err}
	}
	d, err := r.dashboard()
	if err != nil {
		return uses{}, []error{err}
	}
	shown, err := d.queries()
	if err != nil {
		return uses{}, []error{err}
	}
	examples, err := r.examples()
	if err != nil {
		return uses{}, []error{err}
	}
	var faults []error
	found := func(queries []query) asked {
		f := newFinder(rules)
		for _, q := range queries {
			if err := f.find(q); err != nil {
				faults = append(faults, err)
			}
		}
		return f.found
	}
	return uses{Asked: found(slices.Concat(rules.queries(), shown)), Examples: found(examples)}, faults
}
