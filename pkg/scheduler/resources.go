package scheduler

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Resources are amounts by resource name: cpu in millicores, everything else in units (bytes, a count). The number of
// pods is a resource too.
type Resources map[corev1.ResourceName]int64

// FromResourceList converts amounts as the Kubernetes API writes them. Fractions round up, as kube-scheduler rounds.
func FromResourceList(list corev1.ResourceList) Resources {
	resources := make(Resources, len(list)+1)
	for name, quantity := range list {
		resources[name] = amountOf(name, quantity)
	}
	return resources
}

func amountOf(name corev1.ResourceName, quantity resource.Quantity) int64 {
	if name != corev1.ResourceCPU {
		return quantity.Value()
	}
	if quantity.Value() > math.MaxInt64/1000 {
		return math.MaxInt64 // MilliValue would overflow.
	}
	return quantity.MilliValue()
}

// PodRequests returns what a pod takes, as kube-scheduler counts it (KEP-753 sidecars, KEP-2837 pod-level resources):
// its containers and sidecars together or its largest init container, whichever is more, or what the pod as a whole
// states; its overhead; and one of "pods".
func PodRequests(spec *corev1.PodSpec) Resources {
	resources := FromResourceList(resourcehelper.PodRequests(
		&corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{}))
	resources[corev1.ResourcePods] = 1
	return resources
}

// Add adds amounts, such that nothing overflows: what providers say they have is not to be trusted. Negative ones count as
// none.
func (r Resources) Add(amounts Resources) {
	for name, amount := range amounts {
		r[name] = saturated(r[name], amount)
	}
}

func saturated(sum, amount int64) int64 {
	amount = max(amount, 0)
	if sum > math.MaxInt64-amount {
		return math.MaxInt64
	}
	return sum + amount
}

// unlimited is a grant without a limit.
const unlimited = math.MaxInt64

// maxAmount bounds one amount, such that sums of a thousand do not overflow. It is 8 PiB, or as many millicores.
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

func (t *table) numberOf(name string) (int, bool) {
	number, known := t.number[corev1.ResourceName(name)]
	return number, known
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

// grants returns what a slice grants, absent resources included.
func (t *table) grants(granted Resources) amounts {
	flat := make(amounts, wellKnown)
	flat[ephemeralStorage], flat[pods] = unlimited, unlimited
	for name, amount := range granted {
		n := t.intern(name)
		flat = flat.add(n, 0)
		flat[n] = min(max(amount, 0), maxAmount)
	}
	return flat
}

// isScarce says whether a resource is one that a slice exists for (a GPU), rather than one that every slice has. Such
// names have a domain of their own, as extended resources in kube-scheduler.
func isScarce(name corev1.ResourceName) bool {
	domain, _, qualified := strings.Cut(string(name), "/")
	return qualified && !strings.HasSuffix("."+domain, ".kubernetes.io")
}
