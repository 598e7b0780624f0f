package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/procfs"
)

// usage is the resource usage of the processes at one moment.
type usage struct {
	at time.Time
	// memory is the resident memory, in MB, of the largest process, which is the one that gets the requests.
	memory float64
	// cpu is the total processor time of all processes, in seconds.
	cpu float64
}

// usageOf records the usage of processes every second until ctx ends. It reads only values that the kernel provides
// cheaply: to sum up all pages, as for the proportional set size, would delay the measured processes.
func usageOf(ctx context.Context, pids []int) ([]usage, error) {
	var all []usage
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		now, err := usageNow(pids)
		if err != nil {
			return nil, err
		}
		all = append(all, now)
		select {
		case <-ctx.Done():
			return all, nil
		case <-tick.C:
		}
	}
}

func usageNow(pids []int) (usage, error) {
	now := usage{at: time.Now()}
	for _, pid := range pids {
		process, err := procfs.NewProc(pid)
		if err != nil {
			return now, fmt.Errorf("process %d: %w", pid, err)
		}
		stat, err := process.Stat()
		if err != nil {
			return now, fmt.Errorf("process %d: %w", pid, err)
		}
		now.memory = max(now.memory, float64(stat.ResidentMemory())/(1<<20))
		now.cpu += stat.CPUTime()
	}
	return now, nil
}

// heldBy returns the memory at the beginning and at the end. The amount of garbage varies, so each is the minimum over
// a third of the time.
func heldBy(used []usage) (first, last float64) {
	byMemory := func(some []usage) float64 {
		return slices.MinFunc(some, func(x, y usage) int { return cmp.Compare(x.memory, y.memory) }).memory
	}
	third := max(len(used)/3, 1)
	return byMemory(used[:third]), byMemory(used[len(used)-third:])
}

// busy returns the average number of used processors.
func busy(used []usage) float64 {
	first, last := used[0], used[len(used)-1]
	return (last.cpu - first.cpu) / last.at.Sub(first.at).Seconds()
}
