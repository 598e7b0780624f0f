package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// result is the outcome of a run. It is the content of the file that is used to compare two commits.
type result struct {
	Commit  string    `json:"commit,omitempty"`
	Date    time.Time `json:"date"`
	CPUs    int       `json:"cpus"`
	Go      string    `json:"go"`
	Parts   []*report `json:"parts"`
	written string
}

// report has the measurements of one part.
type report struct {
	Name    string    `json:"name"`
	Seconds float64   `json:"seconds"`
	Error   string    `json:"error,omitempty"`
	Figures []*figure `json:"figures"`
}

// figure is one number that was measured several times, with Liqo's own virtual kubelet, with ours, or with both.
type figure struct {
	Name  string    `json:"name"`
	Unit  string    `json:"unit,omitempty"`
	Stock []float64 `json:"stock,omitempty"`
	Ours  []float64 `json:"ours,omitempty"`
	// Goal bounds our median, or the ratio of our median to stock's.
	Goal *goal `json:"goal,omitempty"`
}

// goal is an upper bound or a lower bound.
type goal struct {
	AtMost  float64 `json:"atMost,omitempty"`
	AtLeast float64 `json:"atLeast,omitempty"`
	OfRatio bool    `json:"ofRatio,omitempty"`
	Met     bool    `json:"met"`
}

func newResult(path string) *result {
	r := &result{Date: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Go: runtime.Version(), written: path}
	// The command go run records no version. A tree that is not a clone has no commit.
	if out, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil {
		r.Commit = strings.TrimSpace(string(out))
	}
	return r
}

// write writes the result to its file, and replaces a previous one.
func (r *result) write() error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.written), 0o755); err != nil {
		return err
	}
	return os.WriteFile(r.written, append(text, '\n'), 0o644)
}

// side is a virtual kubelet that is measured: Liqo's own or ours.
type side string

const (
	stock side = "stock"
	ours  side = "ours"
)

// add records a value.
func (r *report) add(of side, name, unit string, value float64) *figure {
	i := slices.IndexFunc(r.Figures, func(f *figure) bool { return f.Name == name })
	if i < 0 {
		r.Figures = append(r.Figures, &figure{Name: name, Unit: unit})
		i = len(r.Figures) - 1
	}
	f := r.Figures[i]
	if of == stock {
		f.Stock = append(f.Stock, value)
	} else {
		f.Ours = append(f.Ours, value)
	}
	return f
}

// addTimes records quantiles of sorted times, in seconds.
func (r *report) addTimes(of side, name string, took []float64, ratio float64) {
	for _, q := range []struct {
		name  string
		share float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"last", 1}} {
		r.add(of, name+", "+q.name, "s", quantileOf(took, q.share)).ratioAtMost(ratio)
	}
}

// quantileOf returns the quantile of sorted values at the given share; 0 if there are no values.
func quantileOf(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

// atMost sets an upper bound for our median.
func (f *figure) atMost(bound float64) { f.Goal = &goal{AtMost: bound} }

// atLeast sets a lower bound for our median.
func (f *figure) atLeast(bound float64) { f.Goal = &goal{AtLeast: bound} }

// ratioAtMost sets an upper bound for the ratio of our median to stock's; 0 sets none.
func (f *figure) ratioAtMost(bound float64) {
	if bound > 0 {
		f.Goal = &goal{AtMost: bound, OfRatio: true}
	}
}

func (f *figure) ratio() float64 { return median(f.Ours) / median(f.Stock) }

// judge records whether the goals are met.
func (r *report) judge() {
	for _, f := range r.Figures {
		if f.Goal == nil {
			continue
		}
		value := median(f.Ours)
		if f.Goal.OfRatio {
			value = f.ratio()
		}
		f.Goal.Met = value >= f.Goal.AtLeast && (f.Goal.AtMost == 0 || value <= f.Goal.AtMost)
	}
}

// print writes the table of a part.
func (r *report) print(out io.Writer) error {
	fmt.Fprintf(out, "\n%s (%.0f s)\n", r.Name, r.Seconds)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\tSTOCK\tOURS\tOURS/STOCK\tGOAL\t")
	for _, f := range r.Figures {
		ratio := ""
		if len(f.Stock) > 0 && len(f.Ours) > 0 {
			ratio = fmt.Sprintf("%.2f", f.ratio())
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", f.Name, f.text(f.Stock), f.text(f.Ours), ratio, f.Goal)
	}
	if r.Error != "" {
		fmt.Fprintf(w, "failed: %s\n", r.Error)
	}
	return w.Flush()
}

func (f *figure) text(values []float64) string {
	if len(values) == 0 {
		return ""
	}
	return fmt.Sprintf("%.4g %s", median(values), f.Unit)
}

// String describes the goal, and whether it is met.
func (g *goal) String() string {
	if g == nil {
		return ""
	}
	text := fmt.Sprintf("≤ %.4g", g.AtMost)
	if g.AtMost == 0 {
		text = fmt.Sprintf("≥ %.4g", g.AtLeast)
	}
	if !g.Met {
		text += ", not met"
	}
	return text
}

// median returns NaN for no values.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}
