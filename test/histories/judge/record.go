// Package judge checks a broker's behaviour by a record of all changes at all API servers. It shares no code with the
// broker. The histories in virtual time and the chaos tests in the sandbox use it.
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

// Change is one change of an object. Before is nil when the object was created, After when it was removed. Neither is
// ever modified.
type Change struct {
	At time.Time
	// By is the client that made the change; "" if it is not known.
	By            string
	Before, After client.Object
}

// Object returns the object in its last state.
func (c *Change) Object() client.Object {
	if c.After != nil {
		return c.After
	}
	return c.Before
}

// Cluster holds the changes at one API server, by kind and in order.
type Cluster struct {
	Pods, ShadowPods, Leases, Nodes, ProviderClusters, Volumes []Change
	// Requests are the brokers' requests, by the time of their ends; empty if they were not recorded.
	Requests []Request
	// Answers are the API server's answers to all clients, in order; empty if they were not recorded.
	Answers []Answer
}

// Answer is an API server's answer to a process.
type Answer struct {
	At   time.Time
	By   string
	Code int
	// Probe is true for an answer to /readyz.
	Probe bool
}

// Request is a request of a broker.
type Request struct {
	At, Until time.Time
	// Deadline is the deadline of the request, which related requests share; zero means none.
	Deadline time.Time
	// By is the process that sent the request.
	By string
	// Verb is a verb of Kubernetes, Probe, or FromCache for an object that was read from the broker's own cache.
	Verb, Kind string
	// Name has an empty name for a list of several objects.
	Name types.NamespacedName
	// VirtualNode is the VirtualNode that forwarded the listed objects; "" means any.
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
	// Gone means that the VirtualNode does not exist at the end.
	Gone bool
}

// place is a VirtualNode of a provider: two providers may have VirtualNodes of the same name. The zero place is none.
type place struct{ provider, virtualNode string }

func (p place) String() string { return p.virtualNode + " of " + p.provider }

// at returns the place of a VirtualNode of this provider.
func (p *Provider) at(virtualNode string) place { return place{p.ID, virtualNode} }

// Consumer is a consumer cluster. Liqo forwards its pods to the broker's cluster.
type Consumer struct {
	ID string
	Cluster
}

// Fault is an injected failure, or an action of an administrator, in a period.
type Fault struct {
	Kind string
	// Provider is the id of the affected provider; arbitrary if the fault affects none.
	Provider string
	// VirtualNode is the deleted VirtualNode if one was deleted; "" for all of the provider.
	VirtualNode string
	From, Until time.Time
	// Ending is when its end began; zero is Until. A process that is restarted may answer from Ending on, and does by
	// Until.
	Ending time.Time
}

// certain returns the end of the time in which the fault certainly had its effect.
func (f *Fault) certain() time.Time {
	if f.Ending.IsZero() {
		return f.Until
	}
	return f.Ending
}

// Times are the brokers' times and the judge's tolerances.
type Times struct {
	ProbeInterval, ProbeTimeout, FailoverAfter, PendingTimeout time.Duration
	// RefusalMemory and StatusInterval are brokers' times as well; 0 if the rules that depend on them are not judged.
	RefusalMemory, StatusInterval time.Duration
	// Noticed is how long the broker may take to notice that the cause of a move is over: a probe's interval and
	// timeout twice, a lag of the watches, a pause shorter than the lease.
	Noticed time.Duration
	// Flap is the gap up to which two successive outages count as one.
	Flap time.Duration
	// Overlap is how long a deleted pod may run beside its successor.
	Overlap time.Duration
	// Skew is how much later than an event at a provider an earlier event in the broker's cluster may be recorded.
	Skew time.Duration
}

// Record holds all changes at all clusters and the faults.
type Record struct {
	Began, Ended time.Time
	// Home is the broker's cluster, Node the name of the broker's Node.
	Home      Cluster
	Node      string
	Providers []*Provider
	Consumers []*Consumer
	Faults    []Fault
	Times     Times
	// NotYet lists the rules that are not judged.
	NotYet []string
}

// Rules that NotYet may list.
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

// PodUID is the annotation of ShadowPods and their pods with the UID of the pod in the broker's cluster.
const PodUID = v1alpha1.PodUIDAnnotation

// Violations returns the rules that the broker broke, in words; nothing if there are none.
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
	faults = append(faults, r.judgeAlone()...)
	faults = append(faults, r.judgeVolumes()...)
	faults = append(faults, r.judgeCosts()...)
	return append(faults, r.judgeNode()...)
}

// span is the time between two moments.
type span struct{ from, to time.Time }

// localPods returns the changes of each pod in the broker's cluster.
func (r *Record) localPods() map[types.UID][]Change {
	pods := map[types.UID][]Change{}
	for _, c := range r.Home.Pods {
		uid := c.Object().GetUID()
		pods[uid] = append(pods[uid], c)
	}
	return pods
}

// latest returns the objects that exist at the end of a record, sorted by namespace and name.
func latest(record []Change) []client.Object {
	var all []client.Object
	later := map[types.NamespacedName]bool{}
	for i := len(record) - 1; i >= 0; i-- {
		key := client.ObjectKeyFromObject(record[i].Object())
		if !later[key] && record[i].After != nil {
			all = append(all, record[i].After)
		}
		later[key] = true
	}
	slices.SortFunc(all, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return all
}

// latestPods returns the pods that exist at the end of a record.
func latestPods(record []Change) (pods []*corev1.Pod) {
	for _, o := range latest(record) {
		pods = append(pods, o.(*corev1.Pod))
	}
	return pods
}

// at returns a time relative to the beginning.
func (r *Record) at(t time.Time) time.Duration { return t.Sub(r.Began).Round(time.Millisecond) }

// granted returns the grant, in thousandths of a CPU, of each VirtualNode that exists at the end.
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

// sortedKeys returns the keys of a map, sorted.
func sortedKeys[K cmp.Ordered, V any](of map[K]V) []K { return slices.Sorted(maps.Keys(of)) }

// providerOf returns the provider to which a pod is assigned; "" for none.
func providerOf(pod client.Object) string {
	if pod == nil {
		return ""
	}
	return pod.GetLabels()[v1alpha1.ProviderLabel]
}

// assignedTo returns the VirtualNode to which a pod is assigned.
func assignedTo(pod client.Object) place {
	if pod == nil || pod.GetLabels()[v1alpha1.VirtualNodeLabel] == "" {
		return place{}
	}
	return place{providerOf(pod), pod.GetLabels()[v1alpha1.VirtualNodeLabel]}
}

// leftFrom returns the provider that a pod is leaving; "" for none.
func leftFrom(pod client.Object) string {
	if pod == nil {
		return ""
	}
	return pod.GetAnnotations()[v1alpha1.MovingFromProviderAnnotation]
}

// placeOf returns the VirtualNode whose capacity a pod uses, by its labels and annotations.
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

// millisOf returns the CPU request of a pod in thousandths of a CPU.
func millisOf(spec *corev1.PodSpec) (millis int64) {
	for i := range spec.Containers {
		millis += spec.Containers[i].Resources.Requests.Cpu().MilliValue()
	}
	return millis
}

// cpus formats an amount in CPUs.
func cpus(millis int64) string { return fmt.Sprintf("%g", float64(millis)/1000) }
