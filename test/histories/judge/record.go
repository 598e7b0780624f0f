// Package judge judges what a broker did, by the record of what happened at all API servers. It shares no code with the
// broker. Histories in virtual time and chaos in the sandbox use it.
package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// Change is one change of an object. Before is nil when it was created, After when it is gone. Both are never changed.
type Change struct {
	At time.Time
	// By is who made it; "" if that is not known.
	By            string
	Before, After client.Object
}

// Object returns the object, as it was last.
func (c *Change) Object() client.Object {
	if c.After != nil {
		return c.After
	}
	return c.Before
}

// Cluster is what happened at one API server, by kind and in order.
type Cluster struct {
	Pods, ShadowPods, Leases, Nodes, ProviderClusters []Change
	// Requests are those of the brokers, by the time of their ends; none if they were not recorded.
	Requests []Request
	// Answers are those that the API server gave to anything, in order; none if they were not recorded.
	Answers []Answer
}

// Answer is one of an API server to a process.
type Answer struct {
	At   time.Time
	By   string
	Code int
}

// Request is what a broker asked.
type Request struct {
	At, Until time.Time
	// Deadline is that of the request, and of others that belong to it; zero is none.
	Deadline time.Time
	// By is the process that asked.
	By string
	// Verb is one of Kubernetes, Probe, or FromCache for an object that was read from the broker's own cache.
	Verb, Kind string
	// Name has no name for a list of more than one object.
	Name types.NamespacedName
	// VirtualNode is the one that forwarded what is listed; "" is any.
	VirtualNode string
}

// Some verbs.
const (
	List      = "list"
	Probe     = "probe"
	FromCache = "read from the cache"
)

// Provider is a provider cluster with the slices that it grants.
type Provider struct {
	ID     string
	Slices []Slice
	Cluster
}

// Slice is a ResourceSlice with its VirtualNode.
type Slice struct {
	VirtualNode string
	// Millis is how many thousandths of a CPU it grants.
	Millis int64
	// Gone means that there is no VirtualNode in the end.
	Gone bool
}

// place is a VirtualNode: two providers may have one of a name. The zero place is none.
type place struct{ provider, virtualNode string }

func (p place) String() string { return p.virtualNode + " of " + p.provider }

// at is a VirtualNode of a provider.
func (p *Provider) at(virtualNode string) place { return place{p.ID, virtualNode} }

// Consumer is a consumer cluster, whose pods come to the broker's cluster by Liqo.
type Consumer struct {
	ID string
	Cluster
}

// Fault is something that went wrong, or an administrator did, from one time to another.
type Fault struct {
	Kind string
	// Provider is the id of the one concerned; any if none is.
	Provider string
	// VirtualNode is the one that was deleted, if one was; "" for all of the provider.
	VirtualNode string
	From, Until time.Time
}

// Times are those of the brokers, and of what judges them.
type Times struct {
	ProbeInterval, ProbeTimeout, FailoverAfter, PendingTimeout time.Duration
	// RefusalMemory and StatusInterval are those of the brokers, too; 0 if what depends on them is not judged.
	RefusalMemory, StatusInterval time.Duration
	// Noticed is how long the broker may take to notice that what speaks for a move is over: a probe's interval and timeout
	// twice, a lag of the watches, a pause shorter than the lease.
	Noticed time.Duration
	// Flap is how short an end of an outage is none.
	Flap time.Duration
	// Overlap is how long a pod that was deleted may run beside the next one.
	Overlap time.Duration
	// Skew is how much later than a provider's an earlier event of the broker's cluster may be recorded.
	Skew time.Duration
}

// Record is what happened, and what was done to the clusters.
type Record struct {
	Began, Ended time.Time
	// Home is the broker's cluster, and Node the name of its Node.
	Home      Cluster
	Node      string
	Providers []*Provider
	Consumers []*Consumer
	Faults    []Fault
	Times     Times
	// NotYet are rules that are not judged.
	NotYet []string
}

// Rules that may be among NotYet.
const (
	Evidence        = "a pod is assigned without the status of its last provider"
	SomewhereBetter = "a pod leaves a provider that is silent for one that has room"
	Names           = "two pods of one name do not run at once"
	Once            = "a pod with restartPolicy Never is started once"
	Restored        = "the Node is made again when it is deleted"
	Silence         = "a provider that answers anything is not silent"
	Disrupted       = "a pod that its provider ended holds no room"
)

// is reports whether a rule is judged.
func (r *Record) is(rule string) bool { return !slices.Contains(r.NotYet, rule) }

// PodUID is an annotation of ShadowPods and their pods: the UID of the pod in the broker's cluster.
const PodUID = v1alpha1.PodUIDAnnotation

// Violations returns what the broker did that it must not have done, in words; nothing if all is well.
func (r *Record) Violations() []string {
	var faults []string
	pods := r.localPods()
	runs := r.runs()
	for _, uid := range sortedKeys(pods) {
		faults = append(faults, r.judgeRuns(pods[uid], runs[uid])...)
		faults = append(faults, r.judgeOnce(pods[uid], runs[uid])...)
		faults = append(faults, r.judgePresence(pods[uid])...)
		faults = append(faults, r.judgeEnd(pods[uid])...)
		faults = append(faults, r.judgeMoves(pods[uid], runs[uid])...)
		faults = append(faults, r.judgeAssignments(pods[uid])...)
		faults = append(faults, r.judgeEvidence(pods[uid])...)
		faults = append(faults, r.judgeDeletions(pods[uid])...)
		faults = append(faults, r.judgeTries(pods[uid])...)
	}
	faults = append(faults, r.judgeNames(pods, runs)...)
	faults = append(faults, r.judgeGrants()...)
	faults = append(faults, r.judgeDrains()...)
	faults = append(faults, r.judgeCosts()...)
	return append(faults, r.judgeNode()...)
}

// span is a time from one moment to another.
type span struct{ from, to time.Time }

// localPods are the changes of each pod in the broker's cluster.
func (r *Record) localPods() map[types.UID][]Change {
	pods := map[types.UID][]Change{}
	for _, c := range r.Home.Pods {
		uid := c.Object().GetUID()
		pods[uid] = append(pods[uid], c)
	}
	return pods
}

// latest are the objects that there are at the end of a record, by namespace and name.
func latest(record []Change) []client.Object {
	all := map[types.NamespacedName]client.Object{}
	for i := range record {
		if key := client.ObjectKeyFromObject(record[i].Object()); record[i].After == nil {
			delete(all, key)
		} else {
			all[key] = record[i].After
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

// latestPods are the pods that there are at the end of a record.
func latestPods(record []Change) (pods []*corev1.Pod) {
	for _, o := range latest(record) {
		pods = append(pods, o.(*corev1.Pod))
	}
	return pods
}

// at returns a time as of the beginning.
func (r *Record) at(t time.Time) time.Duration { return t.Sub(r.Began).Round(time.Millisecond) }

// granted is how many thousandths of a CPU each VirtualNode grants that there is in the end.
func (r *Record) granted() map[place]int64 {
	all := map[place]int64{}
	for _, p := range r.Providers {
		for _, s := range p.Slices {
			if !s.Gone {
				all[p.at(s.VirtualNode)] = s.Millis
			}
		}
	}
	return all
}

// sortedKeys are the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](of map[K]V) []K { return slices.Sorted(maps.Keys(of)) }

// providerOf is the provider that a pod is assigned to; "" is none.
func providerOf(pod client.Object) string {
	if pod == nil {
		return ""
	}
	return pod.GetLabels()[v1alpha1.ProviderLabel]
}

// assignedTo is where a pod is assigned.
func assignedTo(pod client.Object) place {
	if pod == nil || pod.GetLabels()[v1alpha1.VirtualNodeLabel] == "" {
		return place{}
	}
	return place{providerOf(pod), pod.GetLabels()[v1alpha1.VirtualNodeLabel]}
}

// leftFrom is the provider that a pod is leaving; "" is none.
func leftFrom(pod client.Object) string {
	if pod == nil {
		return ""
	}
	return pod.GetAnnotations()[v1alpha1.MovingFromProviderAnnotation]
}

// placeOf is where a pod takes room, by its labels and annotations.
func placeOf(pod *corev1.Pod) place {
	if at := assignedTo(pod); at != (place{}) || terminal(pod) {
		return at
	}
	return place{leftFrom(pod), pod.Annotations[v1alpha1.MovingFromAnnotation]}
}

func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func isReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			return pod.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}

// millisOf is how many thousandths of a CPU a pod requests.
func millisOf(spec *corev1.PodSpec) (millis int64) {
	for i := range spec.Containers {
		millis += spec.Containers[i].Resources.Requests.Cpu().MilliValue()
	}
	return millis
}

// cpus tells an amount.
func cpus(millis int64) string { return fmt.Sprintf("%g", float64(millis)/1000) }
