package simulate

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/pods/eviction"
	"github.com/capacitorset/liqo-broker-vk/pkg/ledger"
)

// maxRows is how many rows of one table are written for people. JSON has all.
const maxRows = 20

// table is a part of a report for people, with a column for each scenario.
type table struct {
	// Title is the title, Keys are the titles of the first columns.
	Title string
	Keys  []string
	// Rows begin with the values of Keys. Left counts the rows that are left out.
	Rows [][]string
	Left int
}

// WriteTable writes the comparison for people.
func (c *Comparison) WriteTable(out io.Writer) error {
	for i, of := range c.tables() {
		if i > 0 {
			fmt.Fprintln(out)
		}
		w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(w, strings.Join(append(upper(of.Keys), c.names()...), "\t"))
		for _, row := range of.Rows {
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if of.Left > 0 {
			fmt.Fprintf(out, "and %d more: use -o json\n", of.Left)
		}
	}
	return nil
}

func upper(texts []string) []string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = strings.ToUpper(text)
	}
	return all
}

// names returns the names of the scenarios.
func (c *Comparison) names() []string {
	names := make([]string, len(c.Scenarios))
	for i, r := range c.Scenarios {
		names[i] = r.Scenario
	}
	return names
}

// row returns a row with a value of each scenario.
func (c *Comparison) row(keys []string, value func(*Report) string) []string {
	row := slices.Clone(keys)
	for _, r := range c.Scenarios {
		row = append(row, value(r))
	}
	return row
}

// tables returns all tables that are not empty.
func (c *Comparison) tables() []table {
	all := []table{c.summary(), c.reasons(), c.consumers(), c.costs(), c.providers()}
	return slices.DeleteFunc(all, func(t table) bool { return len(t.Rows) == 0 })
}

func (c *Comparison) summary() table {
	t := table{Title: "Summary", Keys: []string{"result"}}
	add := func(name string, value func(*Report) string) { t.Rows = append(t.Rows, c.row([]string{name}, value)) }
	count := func(name string, value func(*Report) int) {
		add(name, func(r *Report) string { return strconv.Itoa(value(r)) })
	}
	count("pods arrived", func(r *Report) int { return r.Pods.Arrived })
	count("placed", func(r *Report) int { return r.Pods.Placed })
	count("never placed", func(r *Report) int { return r.Pods.Never })
	count("ended", func(r *Report) int { return r.Pods.Ended })
	add("waited, median", func(r *Report) string { return seconds(r.Waited.P50) })
	add("waited, p90", func(r *Report) string { return seconds(r.Waited.P90) })
	add("waited, p99", func(r *Report) string { return seconds(r.Waited.P99) })
	add("waited, longest", func(r *Report) string { return seconds(r.Waited.Longest) })
	for _, why := range eviction.Reasons() {
		moves := func(r *Report) int {
			i := slices.IndexFunc(r.Moves, func(m Moves) bool { return m.Cause == string(why) })
			if i < 0 {
				return 0
			}
			return r.Moves[i].Moves
		}
		if slices.ContainsFunc(c.Scenarios, func(r *Report) bool { return moves(r) > 0 }) {
			count("moves, "+string(why), moves)
		}
	}
	add("moving, longest", func(r *Report) string { return seconds(r.Moving.Longest) })
	count("stayed, no other fits", func(r *Report) int { return r.Pods.Stayed })
	add("cost", func(r *Report) string { return cmp.Or(rounded(totalCost(r.Costs)), "-") })
	if len(c.Scenarios) > 1 {
		i := -1
		add("places differ from "+c.Scenarios[0].Scenario, func(*Report) string {
			i++
			return fmt.Sprintf("%d of %d", c.DifferentFromFirst[i], c.Common)
		})
	}
	return t
}

func totalCost(rows []*ledger.Row) map[string]float64 {
	total := map[string]float64{}
	for _, row := range rows {
		for currency, value := range row.Cost {
			total[currency] += value
		}
	}
	return total
}

func (c *Comparison) reasons() table {
	t := table{Title: "Why pods were never placed", Keys: []string{"never placed because"}}
	most := map[string]int{}
	for _, r := range c.Scenarios {
		for _, reason := range r.NeverPlaced {
			most[reason.Reason] = max(most[reason.Reason], reason.Pods)
		}
	}
	t.add(c, most, func(reason string, r *Report) string {
		i := slices.IndexFunc(r.NeverPlaced, func(of Reason) bool { return of.Reason == reason })
		if i < 0 {
			return "0"
		}
		return strconv.Itoa(r.NeverPlaced[i].Pods)
	})
	return t
}

// add adds rows in the order of a measure, the largest first.
func (t *table) add(c *Comparison, measure map[string]int, value func(key string, r *Report) string) {
	keys := slices.SortedFunc(maps.Keys(measure), func(x, y string) int {
		return cmp.Or(cmp.Compare(measure[y], measure[x]), strings.Compare(x, y))
	})
	for _, key := range keys[:min(len(keys), maxRows)] {
		t.Rows = append(t.Rows, c.row(strings.Split(key, "\x00"), func(r *Report) string { return value(key, r) }))
	}
	t.Left = len(keys) - len(t.Rows)
}

func (c *Comparison) consumers() table {
	t := table{Title: "Consumers", Keys: []string{"consumer: placed, waited p90, mean share"}}
	of := func(id string, r *Report) *ConsumerReport {
		i := slices.IndexFunc(r.Consumers, func(of ConsumerReport) bool { return of.Consumer == id })
		if i < 0 {
			return nil
		}
		return &r.Consumers[i]
	}
	arrived := map[string]int{}
	for _, r := range c.Scenarios {
		for i := range r.Consumers {
			arrived[r.Consumers[i].Consumer] = max(arrived[r.Consumers[i].Consumer], r.Consumers[i].Arrived)
		}
	}
	t.add(c, arrived, func(id string, r *Report) string {
		report := of(id, r)
		if report == nil {
			return "-"
		}
		return fmt.Sprintf("%d of %d, %s, %s", report.Placed, report.Arrived, seconds(report.Waited.P90), percent(mean(report.Share)))
	})
	return t
}

func (c *Comparison) costs() table {
	t := table{Title: "Cost", Keys: []string{"consumer", "provider"}}
	rows, most := make([]map[string]*ledger.Row, len(c.Scenarios)), map[string]int{}
	for i, r := range c.Scenarios {
		rows[i] = map[string]*ledger.Row{}
		for _, row := range r.Costs {
			key := strings.Join(row.Key, "\x00")
			rows[i][key] = row
			for _, value := range row.Cost {
				most[key] = max(most[key], int(math.Round(value*1e6)))
			}
			most[key] = max(most[key], 0)
		}
	}
	t.add(c, most, func(key string, r *Report) string {
		row := rows[slices.Index(c.Scenarios, r)][key]
		switch {
		case row == nil:
			return "-"
		case row.Unpriced > 0:
			return strings.TrimPrefix(fmt.Sprintf("%s + %.2f pod-hours without a price", rounded(row.Cost), row.Unpriced), " + ")
		}
		return rounded(row.Cost)
	})
	return t
}

func (c *Comparison) providers() table {
	t := table{Title: "Providers", Keys: []string{"provider: used, mean and most"}}
	most := map[string]int{}
	for _, r := range c.Scenarios {
		for i := range r.Providers {
			p := &r.Providers[i]
			most[p.Provider] = max(most[p.Provider], int(1e6*mean(p.Used)))
		}
	}
	t.add(c, most, func(id string, r *Report) string {
		i := slices.IndexFunc(r.Providers, func(of ProviderReport) bool { return of.Provider == id })
		if i < 0 {
			return "-"
		}
		return percent(mean(r.Providers[i].Used)) + ", " + percent(slices.Max(r.Providers[i].Used))
	})
	return t
}

// rounded returns costs by currency, with two decimals.
func rounded(cost map[string]float64) string {
	parts := make([]string, 0, len(cost))
	for _, currency := range slices.Sorted(maps.Keys(cost)) {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%.2f %s", cost[currency], currency)))
	}
	return strings.Join(parts, " + ")
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum / float64(max(1, len(values)))
}

func percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }

// seconds returns a time for people: to milliseconds below a second, to seconds above a minute.
func seconds(value float64) string {
	d := time.Duration(math.Round(value*1000)) * time.Millisecond
	if d >= time.Minute {
		d = d.Round(time.Second)
	}
	return d.String()
}
