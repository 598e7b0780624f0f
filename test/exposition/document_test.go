package exposition

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// documentFile is docs/metrics.md.
const documentFile = "../../docs/metrics.md"

func documented(t *testing.T) document {
	t.Helper()
	d, err := readDocument(documentFile)
	require.NoError(t, err)
	return d
}

// registered returns the metrics of a component, as text and parsed.
func registered(t *testing.T, component string) (string, map[string]metric) {
	t.Helper()
	text, err := expose(registrations()[component])
	require.NoError(t, err)
	metrics, err := parseScrape(strings.NewReader(text))
	require.NoError(t, err)
	return text, metrics
}

func TestEveryMetricIsDocumentedAsItIs(t *testing.T) {
	d := documented(t)
	require.Len(t, d.components, len(registrations()))
	for component := range registrations() {
		_, metrics := registered(t, component)
		require.NotEmpty(t, metrics)
		for _, fault := range d.compare(component, metrics, true) {
			assert.NoError(t, fault)
		}
	}
}

func TestMetricsAreAsPrometheusWantsThem(t *testing.T) {
	for component := range registrations() {
		text, _ := registered(t, component)
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		require.NoError(t, err)
		for _, problem := range problems {
			// These are Liqo's names, which all dashboards for Liqo use.
			if !strings.HasPrefix(problem.Metric, "liqo_virtual_kubelet_reflection_") {
				assert.Fail(t, problem.Text, "%s: %s", component, problem.Metric)
			}
		}
	}
}

// Consumers create pods and namespaces, so these must not be values of a label: their number is unbounded.
func TestLabelsAreBounded(t *testing.T) {
	for component := range registrations() {
		_, metrics := registered(t, component)
		for name, metric := range metrics {
			if strings.HasPrefix(name, "liqo_virtual_kubelet_reflection_") {
				continue // Liqo's own.
			}
			for _, unbounded := range []string{"pod", "namespace", "name", "uid", "container", "image", "address", "user"} {
				assert.NotContains(t, metric.labels, unbounded, name)
			}
		}
	}
}

// The metrics of libraries are checked, too: an upgrade may rename metrics that our rules use.
func TestMetricsOfLibrariesExist(t *testing.T) {
	global, ok := crmetrics.Registry.(prometheus.Collector)
	require.True(t, ok)
	described := make(chan *prometheus.Desc, 10_000)
	global.Describe(described)
	close(described)
	var all []string
	for desc := range described {
		all = append(all, desc.String())
	}
	for name, metric := range documented(t).libraries {
		found := false
		for _, desc := range all {
			if strings.Contains(desc, `fqName: "`+name+`"`) {
				found = true
				for _, label := range metric.labels {
					labels := variable.FindStringSubmatch(desc)
					require.NotNil(t, labels, desc)
					assert.Contains(t, strings.Split(labels[1], ","), label, name)
				}
			}
		}
		assert.True(t, found, "%s does not exist", name)
	}
}

func TestDifferencesAreFound(t *testing.T) {
	d, err := parseDocument("## A\nJob `a`.\n\n| `a_total` | counter | `x`, `y` | Help. | |\n| `b` | gauge | | More. | |\n\n" +
		"## From the libraries\n\n| `go_named` | gauge | | a | It. |\n\nAnd `go_*`, `process_*`.\n")
	require.NoError(t, err)
	require.Equal(t, []string{"go_", "process_"}, d.families)
	right := func() map[string]metric {
		return map[string]metric{
			"a_total": {"a_total", "counter", []string{"x", "y"}, "Help."}, "b": {"b", "gauge", nil, "More."},
			"go_any": {"go_any", "gauge", nil, ""},
		}
	}
	set := func(m metric) func(map[string]metric) {
		return func(shown map[string]metric) { shown[m.name] = m }
	}
	less := func(shown map[string]metric) { delete(shown, "b") }
	fewer := set(metric{"a_total", "counter", []string{"x"}, "Help."})
	for name, tc := range map[string]struct {
		change   func(map[string]metric)
		complete bool
		want     string
	}{
		"as it is":             {change: func(map[string]metric) {}, complete: true},
		"one more":             {change: set(metric{name: "c"}), want: "c is not documented"},
		"one less":             {change: less, complete: true, want: "b is documented and does not exist"},
		"one has not happened": {change: less},
		"another type":         {change: set(metric{"b", "counter", nil, "More."}), want: "b is a counter, not a gauge"},
		"another help":         {change: set(metric{"b", "gauge", nil, "Less."}), want: `the help of b is "Less."`},
		"another label":        {change: set(metric{"b", "gauge", []string{"z"}, "More."}), want: "the labels of b"},
		"a label has no value": {change: fewer},
		"a label less":         {change: fewer, complete: true, want: "the labels of a_total"},
	} {
		t.Run(name, func(t *testing.T) {
			shown := right()
			tc.change(shown)
			faults := d.compare("a", shown, tc.complete)
			if tc.want == "" {
				require.Empty(t, faults)
				return
			}
			require.Len(t, faults, 1)
			require.ErrorContains(t, faults[0], tc.want)
		})
	}
}
