package criteria

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
		Labels:     map[string]string{"topology.kubernetes.io/zone": "eu-1", "version": "1.35.2"},
		Attributes: map[string]string{"region": "eu", "price": "0.12", "cidr": "10.0.0.0/8"},
		KPIs:       map[string]float64{Uptime24h: 0.99, LatencyMilliseconds: 12},
		Granted:    fixed{"cpu": 8, "memory": 16 << 30},
		Assigned:   fixed{"cpu": 2.5, "memory": 4 << 30, "pods": 7},
		Free:       fixed{"cpu": 5.5, "memory": 12 << 30},
	})
	v.SetPod(&Pod{
		Namespace: "team", Name: "web-0", Consumer: "c1",
		Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "10.1.2.3"},
		Requests: fixed{"cpu": 0.5, "memory": 1 << 30, "pods": 1},
	})
	return v
}

func TestFilter(t *testing.T) {
	for expression, want := range map[string]bool{
		"provider.id == 'q1'":                                                           true,
		"provider.attributes['region'] == 'eu'":                                         true,
		"provider.attributes.region in ['us', 'asia']":                                  false,
		"'gpu' in provider.attributes":                                                  false,
		"has(provider.labels.version)":                                                  true,
		"provider.labels[?'none'].orValue('x') == 'x'":                                  true,
		"provider.labels.size() == 2":                                                   true,
		"provider.labels.all(k, k.size() > 3)":                                          true,
		"provider.resources.free['cpu'] > 5":                                            true,
		"provider.resources.free['cpu'] * 2.0 > 11.0":                                   false,
		"'nvidia.com/gpu' in provider.resources.free":                                   false,
		"has(provider.resources.granted.memory)":                                        true,
		"provider.resources.assigned.pods == 7.0":                                       true,
		"provider.resources.granted.size() == 2":                                        true,
		"provider.resources.free.exists(r, r == 'cpu')":                                 true,
		"provider.resources.free == provider.resources.free":                            true,
		"provider.resources.free['memory'] >= quantity('12Gi').asApproximateFloat()":    true,
		"has(provider.kpis.uptime24h) && provider.kpis.uptime24h > 0.9":                 true,
		"has(provider.kpis.failureRate)":                                                false,
		"!has(provider.kpis.failureRate) || provider.kpis.failureRate < 0.1":            true,
		"provider.kpis.latencyMilliseconds < 20":                                        true,
		"pod.namespace == 'team' && pod.name.startsWith('web') && pod.consumer == 'c1'": true,
		"pod.labels['app'] == 'web'":                                                    true,
		"pod.requests['cpu'] < 1":                                                       true,
		"cidr(provider.attributes.cidr).containsIP(pod.annotations.note)":               true,
		"semver(provider.labels.version).isGreaterThan(semver('1.34.0'))":               true,
		"provider.labels['topology.kubernetes.io/zone'].find('[0-9]+') == '1'":          true,
		"url('https://' + provider.id).getHost() == 'q1'":                               true,
		"[1, 2, 3].sum() == 6 && provider.attributes.region.upperAscii() == 'EU'":       true,
		"dyn(provider).id == 'q1' && has(dyn(provider).kpis)":                           true,
		"provider == provider && type(pod) != type(provider)":                           true,
		"double(provider.attributes['price']) < 0.2":                                    true,
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
			[]string{"1:9", "undefined field 'region'", "provider has attributes, id, kpis, labels, resources"},
		},
		"an unknown KPI": {
			NewFilter, "provider.id == 'x' &&\n provider.kpis.latency < 3.0", []string{"2:15", "latencyMilliseconds"},
		},
		"an unknown variable": {
			NewFilter, "region == eu",
			[]string{"1:1", "undeclared reference", "and 1 more", "the variables are provider and pod"},
		},
		"a filter that is a text": {NewFilter, "provider.id", []string{"it gives a string", "a filter must give a bool"}},
		"a filter that may be anything": {
			NewFilter, "dyn(provider).id", []string{"it gives a dyn"},
		},
		"a score that is a bool": {NewScore, "true", []string{"it gives a bool", "a score must give an int or a double"}},
		"a sum of a double and an int": {
			NewScore, "provider.resources.free['cpu'] * 2", []string{"no matching overload", "write 2.0"},
		},
		"one that is too long": {
			NewFilter, strings.Repeat(" ", MaxLength) + "true", []string{"it has 4100 bytes, more than 4096", "shorten it"},
		},
		"a bad regular expression": {NewFilter, "provider.id.matches('(')", []string{"invalid matches argument"}},
		"a text that may grow": {
			NewFilter, "provider.id.replace('q', 'qqq') == ''", []string{"1:20", "replace is not available", "split"},
		},
		"a list of any length": {NewFilter, "lists.range(1000000000).size() > 0", []string{"undeclared reference"}},
		"a format":             {NewFilter, "'%.1000000f'.format([1.0]) == ''", []string{"undeclared reference"}},
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
		"provider.labels.all(i, provider.labels.all(j, provider.labels.all(k, provider.labels.all(l, " +
		"a + b + c + d + e + f + g + h + i + j + k + l != ''))))))))))))"
	for name, tc := range map[string]struct{ expression, problem, remedy string }{
		"an absent attribute": {
			"provider.attributes['gpu'] == 'a100'", "no such key: gpu", "'region' in provider.attributes",
		},
		"an absent resource": {
			"provider.resources.free['nvidia.com/gpu'] > 0", "no such key: nvidia.com/gpu", "in provider.attributes",
		},
		"an unknown KPI": {"provider.kpis.failureRate < 0.1", "failureRate is unknown", "has(provider.kpis"},
		"an unknown KPI by way of dyn": {
			"dyn(provider).kpis.failureRate < 0.1", "failureRate is unknown", "has(provider.kpis",
		},
		"a division by zero":           {"1 / (provider.id.size() - 2) > 0", "division by zero", ""},
		"a provider of its own making": {"brokering.Provider{id: 'x'}.id == 'x'", "unknown type", ""},
		"one that costs too much":      {nested, "cost limit exceeded", "leave out loops within loops"},
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
	p, err := NewScore("double('NaN')")
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
	v.Renew()
	_, err = dear.Filter(v)
	require.NoError(t, err)
}

func TestSimpleExpressionsAreNotAccounted(t *testing.T) {
	for expression, accounted := range map[string]bool{
		"provider.attributes['region'] == 'eu' && provider.resources.free['cpu'] > 1.0": false,
		"'a' in provider.labels || has(provider.kpis.uptime1h)":                         false,
		"provider.labels.all(a, provider.labels.all(b, a == b))":                        true,
		"provider.id == pod.name":                                                       true,
	} {
		env, err := environment()
		require.NoError(t, err)
		checked, issues := env.Compile(expression)
		require.NoError(t, issues.Err())
		require.Equal(t, accounted, len(programOptions(env, checked)) > 1, expression)
	}
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
				v.Renew()
				if keep, err := p.Filter(v); !keep || err != nil {
					b.Fatal(keep, err)
				}
			}
		})
	}
}

// BenchmarkMaxCost measures how long an expression runs until it is stopped.
func BenchmarkMaxCost(b *testing.B) {
	p, err := NewFilter("'x'.matches('" + strings.Repeat("(a|b)+", 600) + "') || [1, 2, 3, 4, 5, 6, 7, 8, 9].all(a, " +
		"[1, 2, 3, 4, 5, 6, 7, 8, 9].all(b, [1, 2, 3, 4, 5, 6, 7, 8, 9].all(c, a + b + c >= 0)))")
	require.NoError(b, err)
	v := variables()
	for b.Loop() {
		v.Renew()
		if _, err := p.Filter(v); err == nil {
			b.Fatal("it was not stopped")
		}
	}
}
