// Command bench measures this repository's virtual kubelet and broker. Where Liqo has an equivalent, it also measures
// Liqo's own virtual kubelet, alternately in the same sandbox. It prints a table of medians and ratios, and writes
// every value to a file.
//
//	go run ./bench                      all parts; hours on a small machine
//	go run ./bench -parts=pod,nodes     some of them
//	go run ./bench -list                the available parts
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options are the options of a run.
type options struct {
	parts, file string
	list        bool
	rounds      int
	sizes       sizes
	timeout     time.Duration
	churn       time.Duration
	byKind      bool
}

// sizes are numbers of pods, separated by commas. If empty, each part uses its own.
type sizes []int

func (s *sizes) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint([]int(*s)), " ", ","), "[]")
}

// Set parses the value of a flag.
func (s *sizes) Set(text string) error {
	*s = nil
	for _, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > maxPods {
			return fmt.Errorf("%q is not a number of pods from 1 to %d", word, maxPods)
		}
		*s = append(*s, n)
	}
	return nil
}

// or returns the sizes, or the part's own if there are none.
func (s sizes) or(ofPart ...int) []int {
	if len(s) > 0 {
		return s
	}
	return ofPart
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.parts, "parts", "", "the parts to measure, separated by commas; default all")
	flags.BoolVar(&o.list, "list", false, "list the parts and exit")
	flags.IntVar(&o.rounds, "rounds", 2, "number of rounds per side, for parts that compare two sides")
	flags.Var(&o.sizes, "sizes", "numbers of pods, separated by commas; default each part's own")
	flags.DurationVar(&o.timeout, "timeout", 30*time.Minute, "timeout of each step of a part")
	flags.DurationVar(&o.churn, "churn", 5*time.Minute, "how long the part broker creates and deletes pods; use 1h for a soak test")
	flags.BoolVar(&o.byKind, "requests", false, "also show requests by kind, for parts that count requests")
	flags.StringVar(&o.file, "json", "../dist/bench.json", "the file for all measured values, as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.rounds < 1 {
		return fmt.Errorf("-rounds=%d: use at least 1", o.rounds)
	}
	chosen, err := choose(o.parts)
	if err != nil {
		return err
	}
	if o.list {
		for _, p := range chosen {
			fmt.Fprintf(stdout, "%-12s %s\n", p.name, p.about)
		}
		return nil
	}
	b := &bench{options: o, say: func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }}
	return b.run(ctx, chosen, stdout)
}

// choose finds parts by their names. Without names it returns all parts.
func choose(names string) ([]part, error) {
	if names == "" {
		return parts, nil
	}
	var chosen []part
	for _, name := range strings.Split(names, ",") {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			var known []string
			for _, p := range parts {
				known = append(known, p.name)
			}
			return nil, fmt.Errorf("no part %q; there are %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, parts[i])
	}
	return chosen, nil
}
