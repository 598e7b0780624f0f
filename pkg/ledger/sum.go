package ledger

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Group is a dimension of a Sum.
type Group string

// The dimensions of a Sum.
const (
	ByConsumer  Group = "consumer"
	ByProvider  Group = "provider"
	ByNamespace Group = "namespace"
	ByWorkload  Group = "workload"
	ByPod       Group = "pod"
	ByDay       Group = "day"
)

// Groups are all dimensions.
func Groups() []Group {
	return []Group{ByDay, ByConsumer, ByNamespace, ByWorkload, ByPod, ByProvider}
}

func (g Group) of(c *Charge) string {
	switch g {
	case ByConsumer:
		return c.Account()
	case ByProvider:
		return c.Provider
	case ByNamespace:
		return c.Namespace
	case ByWorkload:
		return c.Workload
	case ByPod:
		return c.Namespace + "/" + c.Pod
	case ByDay:
		return c.From.UTC().Format(time.DateOnly)
	}
	return ""
}

// Row is a line of a Sum.
type Row struct {
	// Key has a value for each of the dimensions.
	Key []string `json:"key"`
	// Hours are of each resource: cores, GiB, pods, times hours.
	Hours map[corev1.ResourceName]float64 `json:"hours"`
	// Cost is by currency. Unpriced are hours of pods whose price was unknown.
	Cost     map[string]float64 `json:"cost"`
	Unpriced float64            `json:"unpricedPodHours,omitempty"`
}

// Sum adds up charges by dimensions.
type Sum struct {
	groups []Group
	rows   map[string]*Row
}

// NewSum returns a Sum without charges.
func NewSum(groups ...Group) *Sum { return &Sum{groups: groups, rows: map[string]*Row{}} }

// Add adds a charge.
func (s *Sum) Add(c *Charge) {
	key, id := make([]string, len(s.groups)), ""
	for i, g := range s.groups {
		key[i] = g.of(c)
		id += key[i] + "\x00"
	}
	row := s.rows[id]
	if row == nil {
		row = &Row{Key: key, Hours: map[corev1.ResourceName]float64{}, Cost: map[string]float64{}}
		s.rows[id] = row
	}
	row.Hours[c.Resource] += c.Quantity
	switch {
	case c.Priced:
		row.Cost[c.Price.Currency] += c.Cost
	case c.Resource == corev1.ResourcePods:
		row.Unpriced += c.Quantity
	}
}

// Rows returns the lines, by their keys.
func (s *Sum) Rows() []*Row {
	return slices.SortedFunc(maps.Values(s.rows), func(a, b *Row) int {
		return slices.Compare(a.Key, b.Key)
	})
}
