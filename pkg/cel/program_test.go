package cel

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel/values"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
)

// fixed are amounts for tests.
type fixed map[string]float64

func (f fixed) Amount(resource string) (float64, bool) {
	amount, found := f[resource]
	return amount, found
}

func (f fixed) All() map[string]float64 { return f }

func variables() *Variables {
	v := NewVariables()
	v.SetProvider(&Provider{
		ID:         "q1",
		Labels:     values.NewTexts(map[string]string{"topology.kubernetes.io/zone": "eu-1", "version": "1.35.2"}),
		Attributes: values.NewTexts(map[string]string{"region": "eu", "price": "0.12", "cidr": "10.0.0.0/8"}),
		KPIs:       kpi.Values{kpi.Uptime24h: 0.99, kpi.LatencyMilliseconds: 12},
		Granted:    fixed{"cpu": 8, "memory": 16 << 30},
		Assigned:   fixed{"cpu": 2.5, "memory": 4 << 30, "pods": 7},
		Free:       fixed{"cpu": 5.5, "memory": 12 << 30},
	}, func() Cost { return Cost{Hourly: 0.06, Currency: "EUR", Known: true} })
	v.SetPod(&Pod{
		Namespace: "team", Name: "web-0", Consumer: "c1",
		Labels: values.NewTexts(map[string]string{"app": "web"}), Annotations: values.NewTexts(map[string]string{"note": "10.1.2.3"}),
		Requests: fixed{"cpu": 0.5, "memory": 1 << 30, "pods": 1},
	})
	return v
}

func TestFilter(t *testing.T) {
	for expression, want := range map[string]bool{
		"provider.currency == 'EUR' && provider.hourlyCost < 0.1": true,
		"provider.id == 'q1'":                                                                true,
		"provider.attributes['region'] == 'eu'":                                              true,
		"provider.attributes.region in ['us', 'asia']":                                       false,
		"'gpu' in provider.attributes":                                                       false,
		"has(provider.labels.version)":                                                       true,
		"provider.labels[?'none'].orValue('x') == 'x'":                                       true,
		`'C:\\pods'.matches('^C:\\\\pods$')`:                                                 true,
		"provider.labels.size() == 2":                                                        true,
		"provider.labels.all(k, k.size() > 3)":                                               true,
		"provider.resources.free['cpu'] > 5":                                                 true,
		"provider.resources.free['cpu'] * 2.0 > 11.0":                                        false,
		"'nvidia.com/gpu' in provider.resources.free":                                        false,
		"has(provider.resources.granted.memory)":                                             true,
		"provider.resources.assigned.pods == 7.0":                                            true,
		"provider.resources.granted.size() == 2":                                             true,
		"provider.resources.free.exists(r, r == 'cpu')":                                      true,
		"provider.resources.free.map(r, r).indexOf('cpu') >= 0":                              true,
		"provider.resources.free['memory'] >= quantity('12Gi').asApproximateFloat()":         true,
		"has(provider.kpis.uptime24h) && provider.kpis.uptime24h > 0.9":                      true,
		"has(provider.kpis.failureRate)":                                                     false,
		"!has(provider.kpis.failureRate) || provider.kpis.failureRate < 0.1":                 true,
		"provider.kpis.latencyMilliseconds < 20":                                             true,
		"pod.namespace == 'team' && pod.name.startsWith('web') && pod.consumer == 'c1'":      true,
		"pod.labels['app'] == 'web'":                                                         true,
		"pod.requests['cpu'] < 1":                                                            true,
		"cidr(provider.attributes.cidr).containsIP(pod.annotations.note)":                    true,
		"semver(provider.labels.version).isGreaterThan(semver('1.34.0'))":                    true,
		"provider.labels['topology.kubernetes.io/zone'].find('[0-9]+') == '1'":               true,
		"provider.id.matches('^q[0-9]+$') && !provider.id.matches('^q$')":                    true,
		"pod.annotations.note.find('^[0-9]+') == '10'":                                       true,
		"pod.annotations.note.split('.').join('-') == '10-1-2-3'":                            true,
		"provider.labels.map(k, k).filter(k, k == 'version') == ['version']":                 true,
		"provider.labels.exists(k, v, k == 'version' && v.startsWith('1.'))":                 true,
		"'a-ä-b'.indexOf('b') == 4 && 'a-ä-b'.lastIndexOf('-') == 3 && 'a'.indexOf('b') < 0": true,
		"[1, 2, 3].sum() == 6 && provider.attributes.region.upperAscii() == 'EU'":            true,
		"provider == provider":                                                               true,
		"double(provider.attributes['price']) < 0.2":                                         true,
	} {
		t.Run(expression, func(t *testing.T) {
			p, err := NewFilter(expression)
			require.NoError(t, err)
			require.Equal(t, expression, p.Text())
			keep, err := p.Filter(variables())
			require.NoError(t, err)
			require.Equal(t, want, keep)
			_, err = p.Score(variables())
			require.ErrorIs(t, err, ErrExpression)
		})
	}
}

func TestScore(t *testing.T) {
	for expression, want := range map[string]float64{
		"42":                                   42,
		"100.0 * provider.kpis.uptime24h":      99,
		"provider.id == 'q1' ? 1000 : 0":       100,
		"-5":                                   0,
		"provider.resources.free['cpu'] / 0.0": 100,
	} {
		t.Run(expression, func(t *testing.T) {
			p, err := NewScore(expression)
			require.NoError(t, err)
			score, err := p.Score(variables())
			require.NoError(t, err)
			require.InDelta(t, want, score, 1e-9)
			_, err = p.Filter(variables())
			require.ErrorIs(t, err, ErrExpression)
		})
	}
}

func TestWhatDoesNotCompile(t *testing.T) {
	for name, tc := range map[string]struct {
		compile    func(string) (*Program, error)
		expression string
		says       []string
	}{
		"bad syntax": {NewFilter, "provider.id ==", []string{`expression "provider.id =="`, "1:15", "Syntax error"}},
		"an unknown field": {
			NewFilter, "provider.region == 'eu'",
			[]string{"1:9", "undefined field 'region'", "provider has attributes, currency, hourlyCost, id, kpis, labels, resources"},
		},
		"an unknown KPI": {
			NewFilter, "provider.id == 'x' &&\n provider.kpis.latency < 3.0", []string{"2:15", "latencyMilliseconds"},
		},
		"an unknown variable": {
			NewFilter, "region == eu",
			[]string{"1:1", "undeclared reference", "and 1 more", "the variables are provider and pod"},
		},
		"a filter that is a text": {NewFilter, "provider.id", []string{"it returns a string", "a filter must return a bool"}},
		"a score that is a bool":  {NewScore, "true", []string{"it returns a bool", "a score must return an int or a double"}},
		"a sum of a double and an int": {
			NewScore, "provider.resources.free['cpu'] * 2", []string{"no matching overload", "write 2.0"},
		},
		"one that is too long": {
			NewFilter, strings.Repeat(" ", MaxLength) + "true", []string{"it has 4100 bytes, more than 4096", "shorten it"},
		},
		"a bad regular expression": {
			NewFilter, "provider.id.matches('(')", []string{"1:21", "the regular expression is invalid", "missing closing )"},
		},
		"a provider of its own making": {
			NewFilter, "brokering.Provider{id: 'x'}.id == 'x'", []string{"literals of maps and objects are not available"},
		},
		"a function that is not available": {
			NewFilter, "provider.id.replace('q', 'qqq') == ''", []string{"1:20", "replace is not available", "docs/policies.md"},
		},
		"a search from an offset": {NewFilter, "'abc'.indexOf('c', 1) == 2", []string{"1:14", "indexOf takes no offset"}},
		"a pattern of a pod":      {NewFilter, "'a'.matches(pod.name)", []string{"1:16", "must be a literal"}},
		"a large pattern":         {NewFilter, "'a'.matches('(aaaaaaaaaaa){99}')", []string{"more than 1000 instructions"}},
		"a pattern with classes":  {NewFilter, `'a'.matches('\\pL')`, []string{"non-ASCII characters"}},
		"lists that are added":    {NewFilter, "([1] + [2]).size() > 0", []string{"1:6", "lists cannot be added"}},
		"lists of lists":          {NewFilter, "[[1]] == [[2]]", []string{"a list(list(int)) cannot be compared"}},
		"maps":                    {NewFilter, "pod.labels == pod.labels", []string{"a map(string, string) cannot be compared"}},
		"chained optionals":       {NewFilter, "pod.labels[?'a'].optMap(a, a).hasValue()", []string{"optMap is not available"}},
		"too many loops": {
			NewFilter, strings.Repeat("[1].all(a, true) && ", 11) + "true", []string{"it has more than 10 loops"},
		},
		"too many operators": {
			NewFilter, strings.Repeat("1 < 2 && ", 110) + "true", []string{"it has more than 200 functions and operators"},
		},
		"too deep": {
			NewFilter, strings.Repeat("[", 70) + strings.Repeat("]", 70) + ".size() > 0", []string{"recursion"},
		},
		"a list of any length": {NewFilter, "lists.range(1000000000).size() > 0", []string{"range is not available"}},
		"a format":             {NewFilter, "'%.1000000f'.format([1.0]) == ''", []string{"format is not available"}},
		"a value without type": {NewFilter, "has(dyn(provider).kpis)", []string{"1:8", "dyn is not available"}},
		"nothing":              {NewFilter, "", []string{"Syntax error"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tc.compile(tc.expression)
			require.ErrorIs(t, err, ErrExpression)
			for _, text := range tc.says {
				require.ErrorContains(t, err, text)
			}
			require.Less(t, len(err.Error()), 600)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestWhatFailsWhileItRuns(t *testing.T) {
	nested := "provider.labels.all(a, provider.labels.all(b, provider.labels.all(c, provider.labels.all(d, " +
		"provider.labels.all(e, provider.labels.all(f, provider.labels.all(g, provider.labels.all(h, " +
		"provider.labels.all(i, provider.labels.all(j, " +
		"a + b + c + d + e + f + g + h + i + j != ''))))))))))"
	for name, tc := range map[string]struct{ expression, problem, remedy string }{
		"an absent attribute": {
			"provider.attributes['gpu'] == 'a100'", "no such key: gpu", "'region' in provider.attributes",
		},
		"an absent resource": {
			"provider.resources.free['nvidia.com/gpu'] > 0", "no such key: nvidia.com/gpu", "in provider.attributes",
		},
		"an unknown KPI":          {"provider.kpis.failureRate < 0.1", "failureRate is unknown", "has(provider.kpis"},
		"a division by zero":      {"1 / (provider.id.size() - 2) > 0", "division by zero", ""},
		"one that costs too much": {nested, "cost limit exceeded", "avoid nested loops"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := NewFilter(tc.expression)
			require.NoError(t, err)
			keep, err := p.Filter(variables())
			require.False(t, keep)
			require.ErrorIs(t, err, ErrExpression)
			require.ErrorContains(t, err, tc.problem)
			require.ErrorContains(t, err, tc.remedy)
			var fault *Error
			require.True(t, errors.As(err, &fault))
			require.Equal(t, tc.expression, fault.Expression)
			require.Equal(t, name == "one that costs too much", fault.TooCostly)
		})
	}
	p, err := NewScore("0.0 / 0.0")
	require.NoError(t, err)
	_, err = p.Score(variables())
	require.ErrorContains(t, err, "NaN is not a number")
}

func TestEvaluationsTogetherCostOnlySoMuch(t *testing.T) {
	dear, err := NewFilter("[1, 2, 3, 4, 5, 6, 7, 8, 9].all(a, [1, 2, 3, 4, 5, 6, 7, 8, 9].all(b, a + b + provider.labels.size() >= 0))")
	require.NoError(t, err)
	cheap, err := NewFilter("provider.id != ''")
	require.NoError(t, err)
	v := variables()
	runs := 0
	for ; runs <= MaxCostInAll; runs++ {
		if _, err = dear.Filter(v); err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "cost limit exceeded over all providers")
	var fault *Error
	require.ErrorAs(t, err, &fault)
	require.True(t, fault.TooCostly)
	require.Greater(t, runs, MaxCostInAll/MaxCost, "each costs less than it may")
	_, err = cheap.Filter(v)
	require.Error(t, err, "nothing is left for any other")
	v.spent = 0
	_, err = dear.Filter(v)
	require.NoError(t, err)
}

func BenchmarkFilter(b *testing.B) {
	for name, expression := range map[string]string{
		"bounded":   "provider.attributes['region'] == 'eu' && provider.resources.free['cpu'] > 1.0",
		"accounted": "provider.labels.exists(k, k == 'version') && provider.resources.free['cpu'] > 1.0",
	} {
		b.Run(name, func(b *testing.B) {
			p, err := NewFilter(expression)
			require.NoError(b, err)
			v := variables()
			b.ReportAllocs()
			for b.Loop() {
				v.spent = 0
				if keep, err := p.Filter(v); !keep || err != nil {
					b.Fatal(keep, err)
				}
			}
		})
	}
}
