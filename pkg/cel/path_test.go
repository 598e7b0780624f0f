package cel

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel/values"
)

// In a loop CEL evaluates an attribute by its own steps; outside a loop the path is followed. Both find the same value.
func TestPathsFindWhatCELFinds(t *testing.T) {
	for attribute, want := range map[string]string{
		"provider.id":                                   "'q1'",
		"provider.attributes.region":                    "'eu'",
		"provider.attributes['region']":                 "'eu'",
		"provider.attributes['none']":                   "",
		"provider.attributes[pod.name]":                 "",
		"provider['attributes']['region']":              "invalid",
		"provider.kpis.uptime24h":                       "0.99",
		"provider.kpis.uptime1h":                        "",
		"provider.resources.free['cpu']":                "5.5",
		"provider.resources.free.cpu":                   "5.5",
		"provider.resources.granted['pods']":            "",
		"provider.resources['free'].cpu":                "invalid",
		"pod.name":                                      "'web-0'",
		"pod.labels['app']":                             "'web'",
		"pod.annotations.note":                          "'10.1.2.3'",
		"pod.requests['cpu']":                           "0.5",
		"provider.labels.version":                       "'1.35.2'",
		"provider.labels[?'version'].value()":           "'1.35.2'",
		"(true ? provider.labels : pod.labels).version": "'1.35.2'",
	} {
		t.Run(attribute, func(t *testing.T) {
			if want == "invalid" {
				_, err := NewFilter(attribute + " != ''")
				require.ErrorIs(t, err, ErrExpression)
				return
			}
			literal := want
			if want == "" {
				literal = "'x'"
				if attribute == "provider.kpis.uptime1h" || attribute == "provider.resources.granted['pods']" {
					literal = "0.0"
				}
			}
			kept := variables()
			p := *kept.currentProvider.Provider
			p.Labels.Keep()
			p.Attributes.Keep()
			kept.SetProvider(&p, kept.currentProvider.cost)
			var problems []string
			for _, format := range []string{"%s == %s", "[true].exists(x, %s == %s)"} {
				for _, vars := range []*Variables{variables(), kept} {
					program, err := NewFilter(fmt.Sprintf(format, attribute, literal))
					require.NoError(t, err)
					accepted, err := program.Filter(vars)
					require.Equal(t, want != "", accepted)
					require.Equal(t, want == "", err != nil, "%v", err)
					if err != nil {
						var failed *Error
						require.ErrorAs(t, err, &failed)
						problems = append(problems, failed.Problem)
					}
				}
			}
			for _, problem := range problems {
				require.Equal(t, problems[0], problem)
			}
		})
	}
}

// A loop's variable hides another variable of that name.
func TestAPathIsNotThatOfALoopsVariable(t *testing.T) {
	for _, expression := range []string{
		"['q2'].exists(provider, provider == 'q2')",
		"['q2'].exists(pod, pod == 'q2') && pod.name == 'web-0'",
		"pod.labels.exists(provider, provider == 'app' && pod.labels[provider] == 'web')",
	} {
		program, err := NewFilter(expression)
		require.NoError(t, err)
		accepted, err := program.Filter(variables())
		require.NoError(t, err)
		require.True(t, accepted, expression)
	}
}

// A path costs the same as in CEL.
func TestAPathIsCharged(t *testing.T) {
	program, err := NewFilter("provider.attributes.region == 'eu'")
	require.NoError(t, err)
	v := variables()
	_, err = program.Filter(v)
	require.NoError(t, err)
	require.Equal(t, uint64(5), v.spent, "the attribute's three parts, the text, and the comparison")
	v.SetProvider(&Provider{Attributes: values.NewTexts(map[string]string{"region": string(make([]byte, values.MaxText))})}, nil)
	v.spent = 0
	_, err = program.Filter(v)
	require.NoError(t, err)
	require.Equal(t, uint64(5+values.MaxText/bytesPerUnit), v.spent)
}

// The sum of a pod's requests is not charged: it is computed once for each evaluation, and only if it is read.
func TestTheCostIsComputedOnce(t *testing.T) {
	computed := 0
	for expression, want := range map[string]int{
		"[1, 2, 3].all(x, provider.hourlyCost > 0.0 && provider.currency == 'EUR')": 1,
		"provider.id == 'q1'": 0,
	} {
		v := variables()
		program, err := NewFilter(expression)
		require.NoError(t, err)
		for range 2 {
			computed = 0
			v.SetProvider(v.currentProvider.Provider, func() Cost { computed++; return Cost{Hourly: 1, Currency: "EUR", Known: true} })
			accepted, err := program.Filter(v)
			require.NoError(t, err)
			require.True(t, accepted)
			require.Equal(t, want, computed, expression)
		}
	}
}
