package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Contribution is the number of points that a plugin contributed to a total.
type Contribution struct {
	Plugin string
	Points int
}

// Contributions returns the contribution of every plugin to the total, the largest first. They add up to it exactly:
// fractions are dropped, and the missing points go to the plugins with the largest fractions.
func (v *Verdict) Contributions() []Contribution {
	totalWeight := int64(0)
	for _, s := range v.Scores {
		totalWeight += int64(s.Weight)
	}
	contributions := make([]Contribution, len(v.Scores))
	fractions := make([]int64, len(v.Scores))
	missing := v.Total
	for i, s := range v.Scores {
		thousandths := int64(s.Weight) * int64(s.Points)
		whole := int(thousandths / (totalWeight * 1000))
		contributions[i] = Contribution{Plugin: s.Plugin, Points: whole}
		fractions[i] = thousandths % (totalWeight * 1000)
		missing -= whole
	}
	for ; missing > 0; missing-- {
		largest := slices.Index(fractions, slices.Max(fractions))
		contributions[largest].Points++
		fractions[largest] = -1
	}
	slices.SortFunc(contributions, func(a, b Contribution) int {
		return cmp.Or(cmp.Compare(b.Points, a.Points), strings.Compare(a.Plugin, b.Plugin))
	})
	return contributions
}

// Reason returns the filter that the provider failed as text: "insufficient cpu", "region not in [eu]".
func (v *Verdict) Reason() string {
	switch v.Filter {
	case Insufficient:
		return Insufficient.String() + " " + v.Detail
	case NotOffloaded:
		if v.Detail != "" {
			return NotOffloaded.String() + ": " + v.Detail
		}
	case NodeAffinity, TopologySpread, PodAffinity, VolumeElsewhere, NoStorageClass, TooCostly:
		return v.Detail
	}
	return v.Filter.String()
}

// Message returns the decision and its reasons in a line for people: "Assigned to provider q1: score 87 (uptime 40,
// free 30, price 17); 2 others fit, 1 filtered: disabled". The numbers in parentheses add up to the score. When nothing
// fits it is Unschedulable.
func (d *Result) Message() string { return d.line("Assigned to") }

// Prospect is Message for a decision that is not acted upon: "Would be assigned to provider q1: …".
func (d *Result) Prospect() string { return d.line("Would be assigned to") }

func (d *Result) line(verb string) string {
	winner := d.winner()
	if winner == nil {
		return d.Unschedulable()
	}
	var line strings.Builder
	fmt.Fprintf(&line, "%s provider %s", verb, d.Provider)
	if winner.Several {
		fmt.Fprintf(&line, ", slice %s", d.VirtualNode)
	}
	fmt.Fprintf(&line, ": score %d", d.Score)
	if list := listed(winner.Contributions()); list != "" {
		fmt.Fprintf(&line, " (%s)", list)
	}

	reasons, filtered := d.reasons()
	switch others := len(d.Verdicts) - filtered - 1; others {
	case 0:
		line.WriteString("; no other fits")
	case 1:
		line.WriteString("; 1 other fits")
	default:
		fmt.Fprintf(&line, "; %d others fit", others)
	}
	switch len(reasons) {
	case 0:
	case 1:
		fmt.Fprintf(&line, ", %d filtered: %s", filtered, reasons[0].text)
	default:
		fmt.Fprintf(&line, ", %d filtered: %s", filtered, counted(reasons))
	}
	return line.String()
}

// Unschedulable returns how many providers fit, and how many do not, by reason: "0/3 provider clusters fit: 2
// insufficient cpu, 1 disabled".
func (d *Result) Unschedulable() string {
	reasons, filtered := d.reasons()
	line := fmt.Sprintf("%d/%d provider clusters fit", len(d.Verdicts)-filtered, len(d.Verdicts))
	if len(reasons) > 0 {
		line += ": " + counted(reasons)
	}
	return line
}

// Waiting is Unschedulable for the condition of a waiting pod: "no provider cluster fits: disabled, insufficient cpu".
// It has no counts, which change with each provider that comes or goes.
func (d *Result) Waiting() string {
	reasons, _ := d.reasons()
	if len(reasons) == 0 {
		return "no provider clusters available"
	}
	texts := make([]string, len(reasons))
	for i := range reasons {
		texts[i] = reasons[i].text
	}
	slices.Sort(texts)
	return "no provider cluster fits: " + strings.Join(texts, ", ")
}

// Short returns the decision in few characters, for an annotation: "q1 87: uptime 40, free 30, price 17". It leaves out
// plugins that contributed nothing, and is "" when nothing fits.
func (d *Result) Short() string {
	winner := d.winner()
	if winner == nil {
		return ""
	}
	line := fmt.Sprintf("%s %d", d.Provider, d.Score)
	contributions := slices.DeleteFunc(winner.Contributions(), func(c Contribution) bool { return c.Points == 0 })
	if len(contributions) > 0 {
		line += ": " + listed(contributions)
	}
	return line
}

// ParseShort returns the score and the plugins in a text of Short. It is false for any other text.
func ParseShort(short string) (score int, plugins string, ok bool) {
	head, plugins, _ := strings.Cut(short, ": ")
	score, err := strconv.Atoi(head[strings.LastIndexByte(head, ' ')+1:])
	return score, plugins, err == nil
}

// winner returns the verdict of the provider chosen, nil if there is none.
func (d *Result) winner() *Verdict {
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Filter == Passed && v.Provider == d.Provider {
			return v
		}
	}
	return nil
}

// reason is one of the reasons why providers do not fit.
type reason struct {
	text  string
	count int
}

// reasons returns the reasons, the most frequent first, and how many providers do not fit.
func (d *Result) reasons() ([]reason, int) {
	counts := make(map[string]int)
	filtered := 0
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Filter != Passed {
			counts[v.Reason()]++
			filtered++
		}
	}
	reasons := make([]reason, 0, len(counts))
	for text, count := range counts {
		reasons = append(reasons, reason{text, count})
	}
	slices.SortFunc(reasons, func(a, b reason) int {
		return cmp.Or(cmp.Compare(b.count, a.count), strings.Compare(a.text, b.text))
	})
	return reasons, filtered
}

func counted(reasons []reason) string {
	items := make([]string, len(reasons))
	for i, r := range reasons {
		items[i] = fmt.Sprintf("%d %s", r.count, r.text)
	}
	return strings.Join(items, ", ")
}

func listed(contributions []Contribution) string {
	items := make([]string, len(contributions))
	for i, c := range contributions {
		items[i] = fmt.Sprintf("%s %d", c.Plugin, c.Points)
	}
	return strings.Join(items, ", ")
}
