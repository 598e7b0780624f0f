package scheduler

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// unlimited is a grant without a limit.
const unlimited = math.MaxInt64

// maxAmount bounds what one slice grants, and what one pod is counted at. It is 8 PiB, or as many millicores.
const maxAmount = 1 << 53

// The first resources of every table; names seen later follow.
const (
	cpu = iota
	memory
	ephemeralStorage
	pods
	wellKnown
)

// table numbers the resource names, so that amounts are flat slices indexed by these numbers. It only grows: the
// names are those that providers grant and pods ask for, a few.
type table struct {
	names  []corev1.ResourceName
	number map[corev1.ResourceName]int
}

func newTable() table {
	t := table{number: make(map[corev1.ResourceName]int)}
	for _, name := range []corev1.ResourceName{
		cpu: corev1.ResourceCPU, memory: corev1.ResourceMemory,
		ephemeralStorage: corev1.ResourceEphemeralStorage, pods: corev1.ResourcePods,
	} {
		t.intern(name)
	}
	return t
}

func (t *table) intern(name corev1.ResourceName) int {
	n, known := t.number[name]
	if !known {
		n = len(t.names)
		t.names = append(t.names, name)
		t.number[name] = n
	}
	return n
}

// amounts are indexed by the numbers of a table; what lies beyond their end is 0.
type amounts []int64

func (a amounts) of(n int) int64 {
	if n < len(a) {
		return a[n]
	}
	return 0
}

// add returns a with the amount added, longer if it must be.
func (a amounts) add(n int, amount int64) amounts {
	for len(a) <= n {
		a = append(a, 0)
	}
	a[n] += amount
	return a
}

// named returns the amounts that are not 0 by name.
func (t *table) named(flat amounts) resources.Amounts {
	named := resources.Amounts{}
	for number, amount := range flat {
		if amount != 0 {
			named[t.names[number]] = amount
		}
	}
	return named
}

// grants returns what a slice grants, absent resources included. Liqo refuses pods that request a resource which the
// quota of the slice does not name (checkResources of its webhook for ShadowPods); it does not count pods.
func (t *table) grants(granted resources.Amounts) amounts {
	flat := make(amounts, wellKnown)
	flat[pods] = unlimited
	for name, amount := range granted {
		n := t.intern(name)
		flat = flat.add(n, 0)
		flat[n] = min(max(amount, 0), maxAmount)
	}
	return flat
}

// isScarce reports whether a resource is one that a slice exists for (a GPU), rather than one that every slice has.
// Such names have a domain of their own, as extended resources in kube-scheduler.
func isScarce(name corev1.ResourceName) bool {
	domain, _, qualified := strings.Cut(string(name), "/")
	return qualified && !strings.HasSuffix("."+domain, ".kubernetes.io")
}
