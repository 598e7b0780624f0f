package explain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// Explanation is what the broker would decide about a pod now. What is absent is none, or not known.
type Explanation struct {
	Pod        string `json:"pod" doc:"Namespace and name; empty for a pod that does not exist"`
	AssignedTo string `json:"assignedTo,omitempty" doc:"The provider where the pod is"`
	Policy     string `json:"policy,omitempty" doc:"The PlacementPolicy that counts"`
	// Chosen is "" if none fits.
	Chosen    string   `json:"chosen,omitempty" doc:"The provider that would be chosen now, as if the pod took no room yet"`
	Message   string   `json:"message" doc:"The decision in a line, or why there is none"`
	Providers []Choice `json:"providers" doc:"By id"`
}

// Choice is the verdict on one provider.
type Choice struct {
	Provider    string `json:"provider"`
	VirtualNode string `json:"virtualNode,omitempty" doc:"The slice that would be taken"`
	// Filtered is "" if the provider can have the pod.
	Filtered string         `json:"filtered,omitempty" doc:"Why the provider cannot have the pod"`
	Score    int            `json:"score" doc:"0 to 100"`
	Points   map[string]int `json:"points,omitempty" doc:"By score; they add up to the whole"`
	Price    *float64       `json:"price,omitempty" doc:"Of the provider, per CPU and hour"`
}

// Pod is Explainer.Pod from what the API says at a moment.
func Pod(ctx context.Context, c client.Reader, node string, name types.NamespacedName, now time.Time) (*Explanation, error) {
	read := func(ctx context.Context) (*Beliefs, error) { return Read(ctx, c, node) }
	return newExplainer(c, node, read, func() time.Time { return now }).Pod(ctx, name)
}

// decide fills in what the state says now about a pod that is not counted in it.
func (e *Explanation) decide(state *scheduler.State, now time.Time, pod *scheduler.Pod, policy *scheduler.Policy) {
	var d scheduler.Decision
	state.Decide(now, pod, policy, &d)
	e.Chosen, e.Message = d.Provider, d.Prospect()
	if policy != nil {
		e.Policy = policy.Name
	}
	if d.Err != nil {
		e.Message = d.Err.Error()
	}
	providers := state.Providers()
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		choice := Choice{Provider: v.Provider, VirtualNode: v.VirtualNode, Score: v.Total}
		if price, ok := providers[i].Price(); ok {
			choice.Price = &price
		}
		if v.Filter != scheduler.Passed {
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

// Print writes one line for every provider, and one column for every score that counts.
func (e *Explanation) Print(out io.Writer) error { return e.print(out, false) }

// PrintWide is Print with the virtual nodes, and where the pod is now by which policy.
func (e *Explanation) PrintWide(out io.Writer) error { return e.print(out, true) }

func (e *Explanation) print(out io.Writer, wide bool) error {
	var scores []string
	for _, p := range e.Providers {
		for score := range p.Points {
			if !slices.Contains(scores, score) {
				scores = append(scores, score)
			}
		}
	}
	slices.Sort(scores)

	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	header := append([]string{"provider", "verdict", "score"}, scores...)
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
