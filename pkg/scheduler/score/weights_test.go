package score

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidateWeights(t *testing.T) {
	require.NoError(t, ValidateWeights(nil))
	require.NoError(t, ValidateWeights([]Weight{{"free", 0}, {"uptime", 2}}))
	err := ValidateWeights([]Weight{{"free", -1}, {"fre", 1}, {"uptime", 1}, {"uptime", 0}})
	require.ErrorContains(t, err, `weight -1 of score plugin "free" is negative, use 0 to switch it off`)
	require.ErrorContains(t, err, `score plugin "fre" is unknown, use one of `+strings.Join(Plugins(), ", "))
	require.ErrorContains(t, err, `score plugin "uptime" has two weights, give it one`)
}

func TestValidateUptimeWindow(t *testing.T) {
	for _, window := range append(UptimeWindows(), "") {
		require.NoError(t, ValidateUptimeWindow(window))
	}
	require.EqualError(t, ValidateUptimeWindow("2d"), `uptime window "2d" is unknown, use one of 1h, 24h, 7d, 30d`)
}

func TestTheTableOfPlugins(t *testing.T) {
	require.True(t, slices.IsSorted(Plugins()))
	for _, p := range plugins {
		require.NotEqual(t, p.measured == nil, p.points == nil, "%s scores by KPIs, or by candidate", p.name)
	}
}
