package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// show evaluates the dashboard at the time of the last scrape, and writes the content of its panels as Markdown. A
// scrape is JOB/POD=FILE. Scrapes are in the order in which they were made; every is the time between two scrapes of
// one pod.
func (r repository) show(args []string, every time.Duration, out io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	d, err := r.dashboard()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "observability-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := tsdb.Open(dir, slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	// Some metrics have times as values, but the dashboard does not show them.
	begin := time.Now().Truncate(time.Second).Add(-time.Hour)
	last, err := load(db, args, begin, every)
	if err != nil {
		return err
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute})
	defer func() { _ = engine.Close() }()
	shown := screen{
		ask: rules.EngineQueryFunc(engine, db), at: begin.Add(last),
		// The window must contain two scrapes.
		window: max(last+every, 2*every), out: out,
	}
	return shown.write(&d)
}

// load stores the scrapes, and returns the time between the first and the last one.
func load(db *tsdb.DB, args []string, begin time.Time, every time.Duration) (time.Duration, error) {
	count, last := map[string]int{}, time.Duration(0)
	for _, arg := range args {
		target, file, ok := strings.Cut(arg, "=")
		job, pod, ok2 := strings.Cut(target, "/")
		if !ok || !ok2 {
			return 0, fmt.Errorf("%s is not JOB/POD=FILE", arg)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		after := time.Duration(count[target]) * every
		count[target]++
		last = max(last, after)
		if err := store(db, text, job, pod, begin.Add(after)); err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
	}
	return last, nil
}

// store appends one scrape, as Prometheus would.
func store(db storage.Appendable, text []byte, job, pod string, at time.Time) error {
	app := db.Appender(context.Background())
	parser := textparse.NewPromParser(text, labels.NewSymbolTable(), false)
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(err, app.Rollback())
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var series labels.Labels
		parser.Labels(&series)
		_, _, value := parser.Series()
		series = labels.NewBuilder(series).Set("job", job).Set("pod", pod).Labels()
		if _, err := app.Append(0, series, at.UnixMilli(), value); err != nil {
			return errors.Join(err, app.Rollback())
		}
	}
	return app.Commit()
}

// screen evaluates and shows the dashboard.
type screen struct {
	ask    rules.QueryFunc
	at     time.Time
	window time.Duration
	out    io.Writer
}

func (s *screen) write(d *dashboard) error {
	for _, p := range d.Panels {
		if p.Type == "row" {
			fmt.Fprintf(s.out, "\n### %s\n\n| panel | | |\n|---|---|---|\n", p.Title)
			continue
		}
		title := p.Title
		for _, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", model.Duration(s.window).String())
			vector, err := s.ask(context.Background(), plain(expr), s.at)
			if err != nil {
				return fmt.Errorf("panel %s: %w", p.Title, err)
			}
			for _, line := range linesOf(vector, target.LegendFormat, p.FieldConfig.Defaults.Unit) {
				fmt.Fprintf(s.out, "| %s | %s |\n", title, line)
				title = ""
			}
		}
		if title != "" {
			fmt.Fprintf(s.out, "| %s | | — |\n", title)
		}
	}
	return nil
}

// linesOf returns the legend and the value of each series, by legend.
func linesOf(vector promql.Vector, legend, unit string) []string {
	var lines []string
	for _, sample := range vector {
		if math.IsNaN(sample.F) {
			continue
		}
		name := legendLabel.ReplaceAllStringFunc(legend, func(reference string) string {
			return sample.Metric.Get(strings.Trim(reference, "{}"))
		})
		lines = append(lines, name+" | "+inUnit(sample.F, unit))
	}
	slices.Sort(lines)
	return lines
}

// inUnit formats a value approximately as Grafana does.
func inUnit(value float64, unit string) string {
	short := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
	switch unit {
	case "percentunit":
		return short(100*value) + " %"
	case "s":
		return time.Duration(value * float64(time.Second)).Round(time.Microsecond).String()
	case "bytes":
		for _, scale := range []struct {
			size float64
			name string
		}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
			if value >= scale.size {
				return short(value/scale.size) + " " + scale.name
			}
		}
		return short(value) + " B"
	case "ops", "reqps":
		return short(value) + "/s"
	default:
		if value == math.Trunc(value) {
			return strconv.FormatFloat(value, 'f', 0, 64)
		}
		return short(value)
	}
}
