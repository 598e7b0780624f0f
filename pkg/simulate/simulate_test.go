package simulate

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// options are the defaults of the broker's flags.
func options() Options {
	return Options{
		State: state.Config{
			MovesAtOnce: 500, SuspicionWindow: time.Minute, ProbeInterval: 5 * time.Second, ReserveAfter: 5 * time.Minute,
		},
		Rules:        placement.Rules{Failover: v1alpha1.FailoverMove, FailoverAfter: time.Minute, PendingTimeout: 2 * time.Minute},
		ProbeTimeout: 3 * time.Second,
	}
}

func run(t *testing.T, text string) *Report {
	t.Helper()
	sc, err := Parse([]byte(text))
	require.NoError(t, err)
	r, err := Run(t.Context(), sc, options())
	require.NoError(t, err)
	return r
}

const day = `
start: 2026-03-02T00:00:00Z
duration: 24h
seed: 7
providers:
- id: oslo
  attributes: {region: eu}
  prices: [{currency: EUR, perHour: {cpu: "0.05", memory: "0.002"}}]
  granted: {cpu: 16, memory: 64Gi, pods: 100}
- id: turin
  attributes: {region: eu}
  prices: [{currency: EUR, perHour: {cpu: "0.03", memory: "0.002"}}]
  granted: {cpu: 16, memory: 64Gi, pods: 100}
policies:
- metadata: {name: cheap}
  spec:
    weights: [{name: price, weight: 3}, {name: free, weight: 1}]
consumers:
- id: shop
  workloads:
  - name: web
    arrivals: {perHour: 10}
    lifetime: {distribution: exponential, mean: 2h}
    labels: {app: web}
    requests: {cpu: 500m, memory: 1Gi}
events:
- {at: 6h, provider: turin, action: Fail}
- {at: 7h, provider: turin, action: Recover}
- {at: 12h, provider: oslo, action: Drain}
- {at: 13h, provider: oslo, action: Undrain}
`

func TestADay(t *testing.T) {
	r := run(t, day)
	text, err := json.MarshalIndent(r, "", " ")
	require.NoError(t, err)
	t.Log(string(text))
	again, err := json.MarshalIndent(run(t, day), "", " ")
	require.NoError(t, err)
	require.Equal(t, string(text), string(again))
}
