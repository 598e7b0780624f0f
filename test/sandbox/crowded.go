package sandbox

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// MostCrowded is the maximum factor by which timeouts are extended on a busy machine.
const MostCrowded = 4

// Crowded returns the timeout on this machine at this moment for an operation that takes calm on an idle machine. Two
// federations alone have four waiting processes for each CPU; if other programs increase this, the machine causes the
// delay.
func Crowded(calm time.Duration) time.Duration {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return calm
	}
	last, _, _ := strings.Cut(string(load), " ") // of the last minute
	waiting, err := strconv.ParseFloat(last, 64)
	if err != nil {
		return calm
	}
	return time.Duration(max(1, min(MostCrowded, waiting/float64(4*runtime.NumCPU()))) * float64(calm))
}
