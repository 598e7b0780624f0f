package score

import (
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

var failuresPlugin = plugin{
	name: "failures", weight: 2,
	best: "fails the fewest pods", how: "100 - failure rate in percent",
	measured: func(values kpi.Values, _ int) verdict.Points {
		failed, _ := shareOf(values, kpi.FailureRate)
		return best - failed
	},
}
