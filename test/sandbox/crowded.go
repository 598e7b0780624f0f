package sandbox

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// MostCrowded is how many times longer than on a calm machine anything may take.
const MostCrowded = 4

// Crowded is how long something may take at this moment that takes as long as
// calm on a calm machine. Two federations have four processes for each processor
// wait to run; when other programs make that more, what is late is the machine.
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
