package score

import (
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

var latencyPlugin = plugin{
	name: "latency", weight: 1,
	best: "answers fastest", how: "50 for a round trip of 100 ms to its API server, 25 for 300 ms",
	measured: func(values kpi.Values, _ int) verdict.Points { return timeOf(values, kpi.LatencyMilliseconds, 100) },
}
