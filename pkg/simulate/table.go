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
)

// maxRows is how many rows of one table are written for people. JSON has all.
const maxRows = 20

// table is a part of a report for people. Its rows begin with the values of Keys, and have a column for each scenario.
type table struct {
	Title string
	Keys  []string
	Rows  [][]string
	// Left counts the rows that are left out.
	Left int
}

// entry is a value of a table, and its weight in the order of the rows: the largest is first.
type entry struct {
	text   string
	weight float64
}

// entries are the values of one scenario, by the keys of their rows, which sep joins.
type entries map[string]entry

const sep = "\x00"

// WriteTable writes the comparison for people.
func (c *Comparison) WriteTable(out io.Writer) error {
	for i, of := range c.tables() {
		if i > 0 {
			fmt.Fprintln(out)
		}
		w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		header := append(strings.Split(strings.ToUpper(strings.Join(of.Keys, sep)), sep), c.names()...)
		for _, row := range append([][]string{header}, of.Rows...) {
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

// names returns the names of the scenarios.
func (c *Comparison) names() (names []string) {
	for _, r := range c.Scenarios {
		names = append(names, r.Scenario)
	}
	return names
}

// tables returns all tables that are not empty.
func (c *Comparison) tables() []table {
	all := []table{
		c.summary(),
		c.table("Why pods were never placed", "0", (*Report).reasons, "never placed because"),
		c.table("Consumers", "-", (*Report).consumers, "consumer: placed, waited p90, mean share"),
		c.table("Cost", "-", (*Report).costs, "consumer", "provider"),
		c.table("Providers", "-", (*Report).providers, "provider: used, mean and most"),
	}
	return slices.DeleteFunc(all, func(t table) bool { return len(t.Rows) == 0 })
}

// table makes a table of the entries of each scenario. absent is the text of an entry that one of them lacks.
func (c *Comparison) table(title, absent string, of func(*Report) entries, keys ...string) table {
	t, all, weights := table{Title: title, Keys: keys}, make([]entries, len(c.Scenarios)), map[string]float64{}
	for i, r := range c.Scenarios {
		all[i] = of(r)
		for key, e := range all[i] {
			weights[key] = max(weights[key], e.weight)
		}
	}
	sorted := slices.SortedFunc(maps.Keys(weights), func(x, y string) int {
		return cmp.Or(cmp.Compare(weights[y], weights[x]), strings.Compare(x, y))
	})
	for _, key := range sorted[:min(len(sorted), maxRows)] {
		row := strings.Split(key, sep)
		for i := range all {
			row = append(row, cmp.Or(all[i][key].text, absent))
		}
		t.Rows = append(t.Rows, row)
	}
	t.Left = len(sorted) - len(t.Rows)
	return t
}

// summary has the rows of all scenarios in the order in which they are added.
func (c *Comparison) summary() table {
	t := table{Title: "Summary", Keys: []string{"result"}}
	add := func(name string, value func(r *Report) string) {
		row := []string{name}
		for _, r := range c.Scenarios {
			row = append(row, value(r))
		}
		t.Rows = append(t.Rows, row)
	}
	add("pods arrived", func(r *Report) string { return strconv.Itoa(r.Pods.Arrived) })
	add("placed", func(r *Report) string { return strconv.Itoa(r.Pods.Placed) })
	add("never placed", func(r *Report) string { return strconv.Itoa(r.Pods.Never) })
	add("ended", func(r *Report) string { return strconv.Itoa(r.Pods.Ended) })
	add("waited, median", func(r *Report) string { return seconds(r.Waited.P50) })
	add("waited, p90", func(r *Report) string { return seconds(r.Waited.P90) })
	add("waited, p99", func(r *Report) string { return seconds(r.Waited.P99) })
	add("waited, longest", func(r *Report) string { return seconds(r.Waited.Longest) })
	moves := c.table("", "0", func(r *Report) entries {
		of := entries{}
		for _, m := range r.Moves {
			of["moves, "+m.Cause] = entry{strconv.Itoa(m.Moves), float64(m.Moves)}
		}
		return of
	})
	t.Rows = append(t.Rows, moves.Rows...)
	add("moving, longest", func(r *Report) string { return seconds(r.Moving.Longest) })
	add("stayed, no other fits", func(r *Report) string { return strconv.Itoa(r.Pods.Stayed) })
	add("cost", func(r *Report) string {
		total := map[string]float64{}
		for _, row := range r.Costs {
			for currency, value := range row.Cost {
				total[currency] += value
			}
		}
		return cmp.Or(costText(total, 2), "-")
	})
	if row := []string{"places differ from " + c.Scenarios[0].Scenario}; len(c.Scenarios) > 1 {
		for _, n := range c.DifferentFromFirst {
			row = append(row, fmt.Sprintf("%d of %d", n, c.Common))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (r *Report) reasons() entries {
	all := entries{}
	for _, reason := range r.NeverPlaced {
		all[reason.Reason] = entry{strconv.Itoa(reason.Pods), float64(reason.Pods)}
	}
	return all
}

func (r *Report) consumers() entries {
	all := entries{}
	for i := range r.Consumers {
		of := &r.Consumers[i]
		text := fmt.Sprintf("%d of %d, %s, %s", of.Placed, of.Arrived, seconds(of.Waited.P90), percent(mean(of.Share)))
		all[of.Consumer] = entry{text, float64(of.Arrived)}
	}
	return all
}

func (r *Report) costs() entries {
	all := entries{}
	for _, row := range r.Costs {
		e, parts := entry{}, []string{}
		for _, value := range row.Cost {
			e.weight = max(e.weight, value)
		}
		if len(row.Cost) > 0 {
			parts = append(parts, costText(row.Cost, 2))
		}
		if row.Unpriced > 0 {
			parts = append(parts, fmt.Sprintf("%.2f pod-hours without a price", row.Unpriced))
		}
		e.text = strings.Join(parts, " + ")
		all[strings.Join(row.Key, sep)] = e
	}
	return all
}

func (r *Report) providers() entries {
	all := entries{}
	for i := range r.Providers {
		of := &r.Providers[i]
		all[of.Provider] = entry{percent(mean(of.Used)) + ", " + percent(slices.Max(of.Used)), mean(of.Used)}
	}
	return all
}

// costText returns costs by currency, with so many decimals.
func costText(cost map[string]float64, decimals int) string {
	parts := make([]string, 0, len(cost))
	for _, currency := range slices.Sorted(maps.Keys(cost)) {
		parts = append(parts, strings.TrimSpace(strconv.FormatFloat(cost[currency], 'f', decimals, 64)+" "+currency))
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

// seconds returns a time for people: to milliseconds, above a minute to seconds.
func seconds(value float64) string {
	d := time.Duration(math.Round(value*1000)) * time.Millisecond
	if d >= time.Minute {
		d = d.Round(time.Second)
	}
	return d.String()
}
