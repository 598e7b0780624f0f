// Package amounts numbers the names of resources, so that a decision compares amounts without a map.
package amounts

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// Unlimited is a grant without a limit.
const Unlimited = math.MaxInt64

// MaxAmount bounds the amount that one slice grants, and the amount that one pod is counted with. It is 8 PiB, or as
// many millicores.
const MaxAmount = 1 << 53

// The first resources of every table; names seen later follow.
const (
	CPU = iota
	Memory
	ephemeralStorage
	Pods
	WellKnown
)

// Request is the amount of one resource that a pod asks for.
type Request struct {
	// Number is the resource's number in the table, Unknown if no provider ever granted it.
	Number int
	Name   string
	Amount int64
}

// Unknown is the number of a resource that is not in the table.
const Unknown = -1

// Table numbers the resource names, so that amounts are flat slices indexed by these numbers. It only grows: the
// names are those that providers grant and pods ask for, a few.
type Table struct {
	names  []corev1.ResourceName
	number map[corev1.ResourceName]int
}

// NewTable returns a table of the first resources.
func NewTable() Table {
	t := Table{number: make(map[corev1.ResourceName]int)}
	for _, name := range []corev1.ResourceName{
		CPU: corev1.ResourceCPU, Memory: corev1.ResourceMemory,
		ephemeralStorage: corev1.ResourceEphemeralStorage, Pods: corev1.ResourcePods,
	} {
		t.Intern(name)
	}
	return t
}

// Clone returns a copy.
func (t *Table) Clone() Table {
	return Table{names: slices.Clone(t.names), number: maps.Clone(t.number)}
}

// Names are the resources by their numbers.
func (t *Table) Names() []corev1.ResourceName { return t.names }

// Number returns the number of a resource; false if it has none.
func (t *Table) Number(name corev1.ResourceName) (int, bool) {
	n, known := t.number[name]
	return n, known
}

// Intern returns the number of a resource, a new one if it has none.
func (t *Table) Intern(name corev1.ResourceName) int {
	n, known := t.number[name]
	if !known {
		n = len(t.names)
		t.names = append(t.names, name)
		t.number[name] = n
	}
	return n
}

// Flat has amounts by the numbers of a table. Numbers beyond its end are 0.
type Flat []int64

// Of returns the amount of a resource.
func (a Flat) Of(n int) int64 {
	if n < len(a) {
		return a[n]
	}
	return 0
}

// Add returns a with the amount added, longer if it must be.
func (a Flat) Add(n int, amount int64) Flat {
	for len(a) <= n {
		a = append(a, 0)
	}
	a[n] += amount
	return a
}

// Sum adds up grants, in which Unlimited stays Unlimited.
func Sum(a, b Flat) Flat {
	for number, amount := range b {
		a = a.Add(number, 0)
		if amount == Unlimited || a[number] == Unlimited {
			a[number] = Unlimited
		} else {
			a[number] = min(resources.Sum(a[number], amount), Unlimited-1)
		}
	}
	return a
}

// Named returns the amounts that are not 0 by name.
func (t *Table) Named(flat Flat) resources.Amounts {
	named := resources.Amounts{}
	for number, amount := range flat {
		if amount != 0 {
			named[t.names[number]] = amount
		}
	}
	return named
}

// Grants returns the amounts that a slice grants, with a limit for absent resources too. Liqo rejects pods that request
// a resource which the slice's quota does not name (checkResources of its webhook for ShadowPods); it does not count
// pods.
func (t *Table) Grants(granted resources.Amounts) Flat {
	flat := make(Flat, WellKnown)
	flat[Pods] = Unlimited
	for name, amount := range granted {
		n := t.Intern(name)
		flat = flat.Add(n, 0)
		flat[n] = min(max(amount, 0), MaxAmount)
	}
	return flat
}

// IsScarce reports whether only some slices have the resource (a GPU), rather than every slice. Such names have a
// domain of their own, as extended resources in kube-scheduler.
func IsScarce(name corev1.ResourceName) bool {
	domain, _, qualified := strings.Cut(string(name), "/")
	return qualified && !strings.HasSuffix("."+domain, ".kubernetes.io")
}

// Flatten appends the requests to into, in the order in which they are compared with the free amounts: cpu, memory,
// ephemeral-storage, the rest by name, and pods.
func (t *Table) Flatten(into []Request, requests resources.Amounts) []Request {
	for name, amount := range requests {
		if amount <= 0 {
			continue
		}
		number, known := t.number[name]
		if !known {
			number = Unknown
		}
		into = append(into, Request{Number: number, Name: string(name), Amount: amount})
	}
	slices.SortFunc(into, compareRequests)
	return into
}

func compareRequests(a, b Request) int {
	return cmp.Or(cmp.Compare(rank(a.Number), rank(b.Number)), strings.Compare(a.Name, b.Name))
}

func rank(number int) int {
	switch number {
	case CPU, Memory, ephemeralStorage:
		return number
	case Pods:
		return math.MaxInt
	}
	return WellKnown
}
