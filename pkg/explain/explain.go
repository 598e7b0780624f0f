// Package explain explains the broker's decision about a pod, from the objects of an API server. It needs no running
// broker.
package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// Explanation is the decision that the broker would make about a pod now. An absent field is none, or not known.
type Explanation struct {
	Pod        string   `json:"pod" doc:"Namespace and name; empty for a pod that does not exist"`
	AssignedTo string   `json:"assignedTo,omitempty" doc:"The provider that the pod is assigned to"`
	Policy     string   `json:"policy,omitempty" doc:"The PlacementPolicy that is used"`
	Chosen     string   `json:"chosen,omitempty" doc:"The provider that would be chosen now, without the pod's own requests; absent if none fits"`
	Message    string   `json:"message" doc:"The decision in one line, or why there is none"`
	Providers  []Choice `json:"providers" doc:"The verdicts, by id of the provider"`
}

// Choice is the verdict on one provider.
type Choice struct {
	Provider    string         `json:"provider"`
	VirtualNode string         `json:"virtualNode,omitempty" doc:"The slice that would be chosen"`
	Filtered    string         `json:"filtered,omitempty" doc:"Why the pod does not fit; absent if it fits"`
	Score       int            `json:"score" doc:"0 to 100"`
	Points      map[string]int `json:"points,omitempty" doc:"By score; their sum is the score of the provider"`
	Price       *float64       `json:"price,omitempty" doc:"The price of the provider, per CPU and hour"`
	HourlyCost  *float64       `json:"hourlyCost,omitempty" doc:"The cost of an hour of the pod there; absent if the price is unknown"`
	Currency    string         `json:"currency,omitempty" doc:"The currency of price and hourlyCost; absent if it has no name"`
}

// fill sets the verdicts of a decision, which has one for each of the providers.
func (e *Explanation) fill(now time.Time, d *scheduler.Decision, pod *scheduler.Pod, providers []scheduler.Provider,
	policy *scheduler.Policy,
) {
	e.Chosen, e.Message = d.Provider, d.Prospect()
	if policy != nil {
		e.Policy = policy.Name
	}
	if d.Err != nil {
		e.Message = d.Err.Error()
	}
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		choice := Choice{Provider: v.Provider, VirtualNode: v.VirtualNode, Score: v.Total}
		if list := providers[i].Prices.At(now); list != nil {
			if perCPU, priced := list.PerHour[corev1.ResourceCPU]; priced {
				choice.Price = &perCPU
			}
			cost := list.Hourly(pod.Requests)
			choice.HourlyCost, choice.Currency = &cost.Value, cost.Currency
		}
		if v.Filter != verdict.Passed {
			choice.Filtered = v.Reason()
		} else {
			choice.Points = map[string]int{}
			for _, part := range v.Contributions() {
				choice.Points[part.Plugin] = part.Points
			}
		}
		e.Providers = append(e.Providers, choice)
	}
}

// cost is the cost of an hour of the pod at the provider, for people.
func (c *Choice) cost() string {
	if c.HourlyCost == nil {
		return "-"
	}
	return price.Amount{Value: *c.HourlyCost, Currency: c.Currency}.String() + "/h"
}

// Print writes one line for every provider, and one column for every score with a weight.
func (e *Explanation) Print(out io.Writer) error { return e.print(out, false) }

// PrintWide is Print with the virtual nodes, and with the pod's present place and policy.
func (e *Explanation) PrintWide(out io.Writer) error { return e.print(out, true) }

func (e *Explanation) print(out io.Writer, wide bool) error {
	var scores []string
	priced := false
	for _, p := range e.Providers {
		priced = priced || p.HourlyCost != nil
		for score := range p.Points {
			if !slices.Contains(scores, score) {
				scores = append(scores, score)
			}
		}
	}
	slices.Sort(scores)

	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	header := append([]string{"provider", "verdict", "score"}, scores...)
	if priced {
		header = append(header, "cost")
	}
	if wide {
		header = append(header, "virtual-node")
	}
	fmt.Fprintln(w, strings.ToUpper(strings.Join(header, "\t")))
	for _, p := range e.Providers {
		cells := []string{p.Provider, "fits", fmt.Sprint(p.Score)}
		if p.Provider == e.Chosen {
			cells[1] = "chosen"
		}
		if p.Filtered != "" {
			cells[1], cells[2] = p.Filtered, "-"
		}
		for _, score := range scores {
			if points, ok := p.Points[score]; ok {
				cells = append(cells, fmt.Sprint(points))
			} else {
				cells = append(cells, "-")
			}
		}
		if priced {
			cells = append(cells, p.cost())
		}
		if wide {
			cells = append(cells, cmp.Or(p.VirtualNode, "-"))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if wide {
		fmt.Fprintf(out, "Pod %s, now at %s, policy %s\n", e.Pod, cmp.Or(e.AssignedTo, "none"), cmp.Or(e.Policy, "none"))
	}
	_, err := fmt.Fprintln(out, e.Message)
	return err
}
