package proc

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is USER_HZ, which is 100 on every Linux that Go supports.
const clockTick = 100

// Usage is the resource usage of a process so far.
type Usage struct {
	// PSS is the proportional set size in bytes: pages shared by n processes count as 1/n in each, so the sum over
	// processes is the memory in use.
	PSS int64
	// RSS is the resident set size in bytes.
	RSS int64
	// CPU is the user and system time of all threads.
	CPU time.Duration
}

// UsageOf reads the usage of a process from /proc.
func UsageOf(pid int) (Usage, error) {
	var u Usage
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return u, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 2 {
			continue
		}
		kb, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "Pss:":
			u.PSS = kb << 10
		case "Rss:":
			u.RSS = kb << 10
		}
	}
	fields, err := statFields(pid)
	if err != nil {
		return u, err
	}
	for _, s := range fields[11:13] { // utime and stime
		ticks, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return u, err
		}
		u.CPU += time.Duration(ticks) * time.Second / clockTick
	}
	return u, nil
}
