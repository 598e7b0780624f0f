package score

import (
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

var uptimePlugin = plugin{
	name: "uptime", weight: 2,
	best: "was ready most",
	how:  "percentage of the policy's `uptimeWindow`, 24 hours by default, or of the longest shorter one that is known",
	measured: func(values kpi.Values, window int) verdict.Points {
		for ; window >= 0; window-- {
			if up, known := shareOf(values, uptimeWindows[window].kpi); known {
				return up
			}
		}
		return neutral
	},
}
