package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestGeneratedFilesAreCurrent(t *testing.T) {
	made, err := root.generated()
	require.NoError(t, err)
	for name, want := range made {
		got, err := root.read(name)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s: run make generate", name)
	}
}

func TestTheConfigMapHoldsTheDashboard(t *testing.T) {
	text, err := root.read(configMapFile)
	require.NoError(t, err)
	var object struct {
		Metadata struct{ Labels map[string]string }
		Data     map[string]string
	}
	require.NoError(t, yaml.Unmarshal(text, &object))
	require.Equal(t, "1", object.Metadata.Labels["grafana_dashboard"])
	dashboard, err := root.read(dashboardFile)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"liqo-broker.json": string(dashboard)}, object.Data)
}

func TestRulesAreRules(t *testing.T) {
	file, err := root.rules()
	require.NoError(t, err)
	text, err := yaml.Marshal(file)
	require.NoError(t, err)
	_, faults := rulefmt.Parse(text, false, model.UTF8Validation)
	require.Empty(t, faults)
	names := map[string]bool{}
	for _, r := range file.all() {
		require.False(t, names[r.name()], "%s is there twice", r.name())
		names[r.name()] = true
		if r.Record != "" {
			require.Regexp(t, `^[a-z_]+:[a-z_]+:[a-z0-9_]+$`, r.Record)
		}
	}
}

// heading finds the headings of docs/alerts.md that are alerts.
var heading = regexp.MustCompile(`(?m)^## (\w+)$`)

func TestEveryAlertIsExplainedAndTested(t *testing.T) {
	file, err := root.rules()
	require.NoError(t, err)
	document, err := root.read(alertsFile)
	require.NoError(t, err)
	var explained []string
	for _, found := range heading.FindAllStringSubmatch(string(document), -1) {
		explained = append(explained, found[1])
	}
	tested := cases()
	var alerts []string
	for _, r := range file.all() {
		if r.Alert == "" {
			continue
		}
		alerts = append(alerts, r.Alert)
		assert.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"], r.Alert)
		assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
		assert.NotEmpty(t, r.Annotations["description"], r.Alert)
		assert.Equal(t, "https://github.com/capacitorset/liqo-broker-vk/blob/main/docs/alerts.md#"+strings.ToLower(r.Alert),
			r.Annotations["runbook_url"], r.Alert)
		if r.Alert != "LiqoCatalogDown" { // It has its own test.
			require.NotEmpty(t, tested[r.Alert].fires, r.Alert)
			require.NotEmpty(t, tested[r.Alert].quiet, r.Alert)
		}
	}
	require.Equal(t, alerts, explained, "%s has the alerts in the order of the rules", alertsFile)
	require.Len(t, tested, len(alerts)-1, "cases of alerts that do not exist")
}

func TestEveryMetricHasAnExample(t *testing.T) {
	examples, err := root.examples()
	require.NoError(t, err)
	text, err := root.read(documentFile)
	require.NoError(t, err)
	ours := regexp.MustCompile("(?m)^\\| `(liqo_[a-z_]+)` \\|").FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, ours)
	for _, metric := range ours {
		require.True(t, slices.ContainsFunc(examples, func(q query) bool {
			return q.where == documentFile+", "+metric[1] && strings.Contains(q.expr, metric[1])
		}), "%s has no example that asks for it", metric[1])
	}
}

func TestDashboardIsInOrder(t *testing.T) {
	d, err := root.dashboard()
	require.NoError(t, err)
	ids, places := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, places[[2]int{x, y}], "%s is above", p.Title)
				places[[2]int{x, y}] = p.Title
			}
		}
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		require.True(t, p.Type == "row" || len(p.Targets) > 0, p.Title)
		for _, target := range p.Targets {
			requireLegend(t, p.Title, plain(target.Expr), target.LegendFormat)
		}
	}
}

// requireLegend finds labels in a legend that the query's grouping removes: they would be empty.
func requireLegend(t *testing.T, title, expr, legend string) {
	t.Helper()
	parsed, err := parser.ParseExpr(expr)
	require.NoError(t, err, title)
	var kept []string
	grouped := false
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if aggregate, ok := node.(*parser.AggregateExpr); ok && !grouped {
			kept, grouped = aggregate.Grouping, true
		}
		return nil
	})
	for _, found := range legendLabel.FindAllStringSubmatch(legend, -1) {
		require.True(t, !grouped || slices.Contains(kept, found[1]), "%s: %s has no label %s", title, expr, found[1])
	}
}

func TestWhatIsAskedForIsFound(t *testing.T) {
	rules := ruleFile{}
	require.NoError(t, yaml.Unmarshal([]byte(`groups:
  - name: g
    rules:
      - {record: a:b:c, expr: 'sum by (provider, resource) (liqo_broker_free{kind="x"})'}
`), &rules))
	for name, tc := range map[string]struct {
		expr  string
		want  asked
		fault string
	}{
		"matchers and groupings": {
			expr: `sum by (provider) (rate(liqo_broker_a_total{reason!="x",job="liqo-broker"}[5m]))`,
			want: asked{"liqo-broker": {"liqo_broker_a_total": {"provider", "reason"}}},
		},
		"the series of a histogram": {
			expr: `histogram_quantile(0.9, sum by (le, pod) (rate(liqo_catalog_t_seconds_bucket[5m]))) / ` +
				`sum(liqo_catalog_t_seconds_count{code="1"})`,
			want: asked{"liqo-broker-catalog": {"liqo_catalog_t_seconds": {"code"}}},
		},
		"the labels of a match": {
			expr: `liqo_broker_vk_a * on (x) group_left () liqo_virtual_kubelet_b`,
			want: asked{"liqo-virtual-kubelet": {"liqo_broker_vk_a": {"x"}, "liqo_virtual_kubelet_b": {"x"}}},
		},
		"through a record": {
			expr: `max by (resource) (a:b:c{provider="p"})`,
			want: asked{"liqo-broker": {"liqo_broker_free": {"kind", "provider", "resource"}}},
		},
		"several jobs": {expr: `sum by (job, x) (go_goroutines{job=~"a|b"})`, want: asked{
			"a": {"go_goroutines": {"x"}}, "b": {"go_goroutines": {"x"}},
		}},
		"Prometheus' own":            {expr: `absent(up{job="a"} == 1)`, want: asked{}},
		"whose is not said":          {expr: `go_goroutines`, fault: "does not say which job"},
		"a record that is not there": {expr: `x:y:z`, fault: "does not say which job"},
		"no PromQL":                  {expr: `sum(`, fault: "parse error"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFinder(rules)
			err := f.find(query{"here", tc.expr})
			if tc.fault != "" {
				require.ErrorContains(t, err, tc.fault)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, f.found, fmt.Sprint(f.found))
		})
	}
}
