package scheduler

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestAmountsDoNotOverflow(t *testing.T) {
	sum := Resources{}
	sum.Add(Resources{"memory": math.MaxInt64, "cpu": 2000, "pods": -5})
	sum.Add(Resources{"memory": 1, "cpu": 500, "pods": math.MinInt64})
	require.Equal(t, Resources{"memory": math.MaxInt64, "cpu": 2500, "pods": 0}, sum)

	rapid.Check(t, func(t *rapid.T) {
		sum := Resources{}
		for _, amount := range rapid.SliceOf(rapid.Int64()).Draw(t, "amounts") {
			before := sum["x"]
			sum.Add(Resources{"x": amount})
			require.GreaterOrEqual(t, sum["x"], before)
		}
	})
}
