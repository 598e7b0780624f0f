package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/procfs"
)

// usage is what the processes use at a moment.
type usage struct {
	at time.Time
	// memory is the resident memory of the largest, which is the one that is asked, in MB.
	memory float64
	// cpu is the processor time of all so far, in seconds.
	cpu float64
}

// usageOf notes what processes use, every second until ctx ends. It reads what costs the kernel next to nothing: to add up
// all their pages, as for a proportional set size, would hold up those that are measured.
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

// heldBy is the memory at the beginning and at the end. Garbage comes and goes: the least of a third of the time is what
// is held.
func heldBy(used []usage) (first, last float64) {
	byMemory := func(some []usage) float64 {
		return slices.MinFunc(some, func(x, y usage) int { return cmp.Compare(x.memory, y.memory) }).memory
	}
	third := max(len(used)/3, 1)
	return byMemory(used[:third]), byMemory(used[len(used)-third:])
}

// busy is how many processors were used.
func busy(used []usage) float64 {
	first, last := used[0], used[len(used)-1]
	return (last.cpu - first.cpu) / last.at.Sub(first.at).Seconds()
}
