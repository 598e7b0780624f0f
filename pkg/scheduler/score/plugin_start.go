package score

import (
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

var startPlugin = plugin{
	name: "start", weight: 1,
	best: "starts pods fastest", how: "50 for a median of 10 s from assignment to running, 20 for 40 s",
	measured: func(values kpi.Values, _ int) verdict.Points { return timeOf(values, kpi.PodStartP50Seconds, 10) },
}
