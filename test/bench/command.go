package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// command is a part that another program measures. It shows the program's output. In lines of the format of `go test
// -bench`, each value becomes a figure.
func command(name string, args ...string) func(*bench, context.Context, *report) error {
	return func(b *bench, ctx context.Context, r *report) error {
		ctx, cancel := context.WithTimeout(ctx, b.timeout)
		defer cancel()
		var printed, faults bytes.Buffer
		c := exec.CommandContext(ctx, name, args...)
		c.Stdout, c.Stderr = &printed, &faults
		err := c.Run()
		for lines := bufio.NewScanner(&printed); lines.Scan(); {
			if !readBenchmark(r, lines.Text()) {
				b.say("  %s", lines.Text())
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", c, err, &faults)
		}
		return nil
	}
}

// readBenchmark reads a line of the format of Go's benchmarks: a name that begins with Benchmark, a number of
// iterations, and pairs of value and unit.
func readBenchmark(r *report, line string) bool {
	fields := strings.Fields(line)
	if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
		return false
	}
	if _, err := strconv.Atoi(fields[1]); err != nil {
		return false
	}
	base := strings.TrimPrefix(fields[0], "Benchmark")
	for i := 2; i+1 < len(fields); i += 2 {
		value, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return false
		}
		name := base
		if i > 2 {
			name += ", " + fields[i+1]
		}
		r.add(ours, name, fields[i+1], value)
	}
	return true
}
