package simulate

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Comparison has the reports of one or more scenarios, side by side.
type Comparison struct {
	Scenarios []*Report `json:"scenarios"`
	// Common is the number of pods that arrive in all scenarios: pods are the same if their namespaces and names are.
	Common int `json:"commonPods"`
	// DifferentFromFirst counts, for each scenario, the common pods whose places differ from those in the first one.
	DifferentFromFirst []int `json:"differentFromFirst"`
	// Different are the common pods whose places are not the same in all scenarios, by their arrival in the first one.
	Different []Difference `json:"different"`

	// differs has the ids of Different.
	differs map[string]bool
}

// Difference is a pod whose places differ.
type Difference struct {
	// Pod is namespace/name. Places are the ids of its providers in each scenario, in order; empty if it was never
	// assigned.
	Pod    string     `json:"pod"`
	Places [][]string `json:"places"`
}

// Compare compares the reports of Run.
func Compare(reports ...*Report) *Comparison {
	c := &Comparison{
		Scenarios: reports, Different: []Difference{}, DifferentFromFirst: make([]int, len(reports)), differs: map[string]bool{},
	}
	byID := make([]map[string]*record, len(reports))
	for i, r := range reports {
		byID[i] = make(map[string]*record, len(r.records))
		for _, of := range r.records {
			byID[i][of.id()] = of
		}
	}
	for _, first := range reports[0].records {
		d := Difference{Pod: first.id()}
		for i := range reports {
			of := byID[i][d.Pod]
			if of == nil {
				break
			}
			d.Places = append(d.Places, append([]string{}, of.places...))
		}
		if len(d.Places) < len(reports) {
			continue
		}
		c.Common++
		for i, places := range d.Places {
			if !slices.Equal(places, first.places) {
				c.DifferentFromFirst[i]++
				c.differs[d.Pod] = true
			}
		}
		if c.differs[d.Pod] {
			c.Different = append(c.Different, d)
		}
	}
	return c
}

// WriteJSON writes the comparison as JSON.
func (c *Comparison) WriteJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(c)
}

// columns are the columns of the CSV. Times are in UTC (RFC 3339).
func columns() []string {
	return []string{
		"scenario", "consumer", "namespace", "pod", "workload", "arrived", "placed", "waited_seconds", "ended", "places", "moves", "cost",
		"waits_for", "differs",
	}
}

// WriteCSV writes a line for each pod of each scenario.
func (c *Comparison) WriteCSV(out io.Writer) error {
	w := csv.NewWriter(out)
	if err := w.Write(columns()); err != nil {
		return err
	}
	for _, r := range c.Scenarios {
		for _, of := range r.records {
			waited := ""
			if !of.placed.IsZero() {
				waited = strconv.FormatFloat(of.placed.Sub(of.arrived).Seconds(), 'f', -1, 64)
			}
			err := w.Write([]string{
				r.Scenario, of.consumer, of.namespace, of.name, of.workload, timestamp(of.arrived), timestamp(of.placed), waited,
				timestamp(of.ended), strings.Join(of.places, ">"), strconv.Itoa(of.moves), costText(of.cost, 6),
				strings.Join(of.waits, "; "), strconv.FormatBool(c.differs[of.id()]),
			})
			if err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}

func timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
