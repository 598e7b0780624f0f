package scheduler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

func TestAPolicyLimitsTheCostOfAPod(t *testing.T) {
	s := stateOf(
		ready("dear", priced("EUR", prices{"cpu": 0.2, "memory": 0.011})),
		ready("exact", priced("EUR", prices{"cpu": 0.1, "memory": 0.05, "pods": 0.06})), // In floating point the sum exceeds 0.21.
		ready("foreign", priced("USD", perCPU(0.01))),
		ready("free"),
		ready("nameless", priced("", perCPU(0.01))),
	)
	const nameless = "price in another currency than the limit, which has none"
	for name, tc := range map[string]struct {
		limit *price.Amount
		want  map[string]string
	}{
		"none": {nil, map[string]string{"dear": "fits", "exact": "fits", "foreign": "fits", "free": "fits", "nameless": "fits"}},
		"in euro": {&price.Amount{Value: 0.21, Currency: "EUR"}, map[string]string{
			"dear": "costs 0.211 EUR/h, more than 0.21", "exact": "fits",
			"foreign": "price in another currency than EUR", "free": "price unknown", "nameless": "price in another currency than EUR",
		}},
		"without a currency": {&price.Amount{Value: 0.21}, map[string]string{
			"dear": nameless, "exact": nameless,
			"foreign": nameless, "free": "price unknown", "nameless": "fits",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			reasons := map[string]string{}
			for _, v := range decide(s, asking(), &Policy{MaxHourlyCost: tc.limit}).Verdicts {
				reasons[v.Provider] = v.Reason()
			}
			require.Equal(t, tc.want, reasons)
		})
	}
}

// A decision that was made on a copy is completed by the present prices, and each by the prices of its time.
func TestPricesChangeInTime(t *testing.T) {
	hour := time.Hour
	s := stateOf(ready("p", func(p *Provider) {
		p.Prices = price.Lists{{PerHour: perCPU(1)}, {From: now.Add(hour), PerHour: perCPU(3)}}
	}))
	policy := &Policy{MaxHourlyCost: &price.Amount{Value: 2}}
	pod := asking()
	d := s.Snapshot(pod).Decide(now, pod, policy)
	require.Equal(t, "p", d.Provider)
	s.Confirm(now.Add(hour), pod, policy, &d)
	require.Equal(t, verdict.TooCostly, d.Verdicts[0].Filter)
	d = s.Decide(now.Add(hour), pod, policy)
	require.Equal(t, "costs 3/h, more than 2", d.Verdicts[0].Reason())
}

func TestExpressionsSeeTheCostOfThePod(t *testing.T) {
	s := stateOf(ready("p", priced("EUR", perCPU(0.5))), ready("q"))
	pod := asking(requesting(resources.Amounts{"cpu": 2000}))
	d := decide(s, pod, &Policy{
		Filter: filterOf(t,
			"!has(provider.hourlyCost) || provider.hourlyCost < 1.0 && provider.currency == 'EUR'"),
	})
	require.Equal(t, "policy filter", d.Verdicts[0].Reason())
	require.Equal(t, "fits", d.Verdicts[1].Reason())
}
