package state

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/disruption"
	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

const (
	// failedProbesUntilUnreachable is how many probes in a row must get no answer, answeredProbesUntilReachable how
	// many must then be answered: a provider that answers now and then cannot be reached.
	failedProbesUntilUnreachable = 2
	answeredProbesUntilReachable = 2
	// witnessProbes is how many probe intervals an answer to a virtual kubelet shows that its provider is not silent.
	// By default that is longer than a virtual kubelet takes for the next one and for the lease that reports it.
	witnessProbes = 3
	// probesUntilConfirmed is how many probes of a leader show the state of a provider that answers every other one.
	probesUntilConfirmed = 4
	// staleProbes is how many probes may be missing before the time counts as unobserved.
	staleProbes = 6
)

// provider is the record of one provider cluster.
type provider struct {
	spec    ProviderSpec
	tracker *kpi.Tracker
	// last is the last probe; probed is false before the first one of this leader.
	last   Probe
	probed bool
	// confirmed means that probes of this leader show whether the provider can be reached: as many were answered, or
	// failed, as it takes to change the previous leader's state.
	confirmed bool
	// failedProbes counts those in a row without an answer, firstFailed is the time of the first of them.
	// answeredProbes counts those in a row with one during an outage. unusableProbes counts those in a row in which the
	// provider was not ready, alive or not.
	failedProbes, answeredProbes, unusableProbes int
	firstFailed                                  time.Time
	// unreachableSince is zero while the provider is not silent.
	unreachableSince time.Time
	// failoverFrom is the time from which Failover.After counts in an outage, by the clock of this leader. earlier is
	// how long the outage had lasted under the previous leader, by that leader's clock.
	failoverFrom time.Time
	earlier      time.Duration
	// started has the VirtualNodes at which this leader has seen pods start.
	started map[string]Started
	// closings are, by VirtualNode, the counts of pods that did not start there.
	closings map[string]*closing
	// unclean means that pods were moved away while the provider could not be reached, which may still run there. moved
	// counts how often.
	unclean bool
	moved   int
	// answered and failed count probes, assignments decisions, refusals pods that the provider did not take, by reason.
	answered, failed, assignments int
	refusals                      map[RefusalReason]int
	// scheduled is the provider as the scheduler last read it, without the fields that change with every probe;
	// movesDependOn has the other inputs that decide about the pods there.
	scheduled     scheduler.Provider
	movesDependOn moveInputs
	// changed is the number of the last change of scheduled or movesDependOn.
	changed uint64
}

// moveInputs are the inputs that decide whether pods must leave a provider, or that waiting pods wait for, besides its
// object.
type moveInputs struct {
	confirmed, unreachable, unusable, suspended, draining bool
	// pricedFrom is the From of the present prices.
	pricedFrom time.Time
}

// ProviderSpec is the state of a provider in the API.
type ProviderSpec struct {
	Enabled, Draining bool
	// VirtualNodes by name; true means that the VirtualNode is being deleted.
	VirtualNodes map[string]bool
	// RemoteNamespaces has the names at the provider of the local namespaces that are mapped there; nil is not known
	// yet.
	RemoteNamespaces map[string]string
}

// Probe is the result of one probe of a provider.
type Probe struct {
	Began, Ended time.Time
	// Answered means that the API server was ready; Took is its round trip. Otherwise Problem is why not.
	Answered bool
	Took     time.Duration
	Problem  string
	// Alive means that it was not ready, but not silent: it rejects the broker, for example, or the broker has no
	// identity for it. Reason is then the reason of the condition. Only silence moves pods.
	Alive  bool
	Reason string
	// Reached is when a virtual kubelet last had an answer from it, by the clock of the broker; zero if that is not
	// known.
	Reached time.Time
	// Kubelets reports, by VirtualNode, whether the lease of its virtual kubelet is live. One that is missing could not
	// be read, and stays as it was.
	Kubelets map[string]bool
}

// Provider is the state of one provider at a moment.
type Provider struct {
	// Probed is false before the first probe of this leader. Confirmed is false until its probes show whether the
	// provider can be reached: a first probe that fails does not.
	Probed, Confirmed bool
	// UnreachableSince is zero while the provider counts as reachable; before it is Confirmed, the time is from the
	// previous leader. LastProbe is zero before the first one.
	UnreachableSince, LastProbe time.Time
	// Problem is why the last probe was not answered, also if the previous leader made it.
	Problem string
	// Unusable means that the provider is alive, but that it was not ready at its last probes; Reason is the reason of
	// the condition. No pod is assigned there, and none moves for that.
	Unusable bool
	Reason   string
	// Kubelets reports, by VirtualNode, whether the lease of its virtual kubelet is live.
	Kubelets map[string]bool
	// Unclean means that pods were moved away while the provider could not be reached, which may still run there. Moved
	// counts how often. Answers means that it can be reached, and answered the last probe.
	Unclean, Answers bool
	Moved            int
	// RemoteNamespaces are those of its ProviderSpec. The caller must not change them.
	RemoteNamespaces map[string]string
	// Granted is the sum of the grants of its slices.
	Granted resources.Amounts
	// Draining means that the scheduler assigns no pod there because the provider is drained.
	Draining bool
	KPIs     v1alpha1.KPIs
	// Assigned has the assigned pods and resources of each of its VirtualNodes, including pods that are leaving it.
	Assigned map[string]Assigned
	// Closed has the VirtualNodes that accept no pods because none starts there, Reserved the capacity reserved for
	// pods that wait.
	Closed   map[string]Closing
	Reserved map[string]Reservation
	// MovesWaiting are the pods there that wait for their replicas before they leave.
	MovesWaiting disruption.Waiting
	// Staying are the pods that stay although the provider is drained, because no other fits, such as those whose volumes
	// are there.
	Staying disruption.Waiting
	// ProbesAnswered, ProbesFailed, Assignments and Refusals (by reason) are counts of this leader.
	ProbesAnswered, ProbesFailed, Assignments int
	Refusals                                  map[RefusalReason]int
}

// Assigned is the load of one VirtualNode. Pods do not include those that have ended, Resources do.
type Assigned struct {
	Resources resources.Amounts
	Pods      int
}

// SetProvider records the state of a provider in the API. A provider that was not known begins with the state in its
// status. The VirtualNodes that it no longer has are returned.
func (f *Federation) SetProvider(id string, spec ProviderSpec, status *v1alpha1.ProviderClusterStatus) (gone []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, known := f.providers[id]
	if !known {
		p = newProvider(status, f.cfg.ProbeInterval)
		p.restoreClosings(status, f.cfg.Clock.Now())
		f.providers[id] = p
	}
	for virtualNode := range p.spec.VirtualNodes {
		if _, has := spec.VirtualNodes[virtualNode]; !has {
			gone = append(gone, virtualNode)
			delete(p.started, virtualNode)
			delete(p.closings, virtualNode)
		}
	}
	p.spec = spec
	return gone
}

// newProvider continues from the status that the previous leader wrote.
func newProvider(status *v1alpha1.ProviderClusterStatus, probeInterval time.Duration) *provider {
	p := &provider{
		tracker:  kpi.NewTracker(status.KPIs, staleProbes*probeInterval),
		refusals: map[RefusalReason]int{Refused: 0, PendingTooLong: 0}, started: map[string]Started{}, closings: map[string]*closing{},
	}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		switch {
		case c.Status != metav1.ConditionFalse:
		case c.Type == v1alpha1.ProviderClean:
			p.unclean = true
		case c.Type == v1alpha1.ProviderReachable && c.Reason == v1alpha1.ReasonNoAnswer:
			// The outage is as old as the condition. The previous leader may not have written that it moved pods away.
			p.unreachableSince, p.firstFailed = c.LastTransitionTime.Time, c.LastTransitionTime.Time
			p.unclean, p.last.Problem = true, c.Message
			if last := status.KPIs.Uptime.Until; last != nil { // Its last probe; the clock of this leader may be another.
				p.earlier = max(0, last.Sub(c.LastTransitionTime.Time))
			}
		}
	}
	return p
}

// RemoveProvider records that a provider no longer has a VirtualNode. It reports whether the provider was known.
func (f *Federation) RemoveProvider(id string) (known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, known = f.providers[id]
	delete(f.providers, id)
	f.scheduler.RemoveProvider(id)
	return known
}

// equalities compare the scheduler's input. Kubernetes' equalities panic at a time.Time.
var equalities = func() conversion.Equalities {
	e := equality.Semantic.Copy()
	if err := e.AddFunc(time.Time.Equal); err != nil {
		panic(err)
	}
	return e
}()

// Schedule sets the provider that the scheduler chooses from. It reports whether that may concern any pod: KPIs change
// with every probe, and do not count.
func (f *Federation) Schedule(fresh scheduler.Provider) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, known := f.providers[fresh.ID]
	if !known {
		return false
	}
	f.scheduler.SetProvider(fresh)
	for i := range fresh.Slices { // The status may be older.
		f.claim(p, scheduler.Place{Provider: fresh.ID, VirtualNode: fresh.Slices[i].VirtualNode})
	}
	fresh.KPIs, fresh.NotReady = nil, ""
	inputs := moveInputs{
		confirmed: p.confirmed, unreachable: !p.unreachableSince.IsZero(), unusable: p.unusable(),
		suspended: f.movesSuspended(p, f.suspicious()), draining: p.spec.Draining,
	}
	if prices := fresh.Prices.At(f.cfg.Clock.Now()); prices != nil {
		inputs.pricedFrom = prices.From
	}
	changed = inputs != p.movesDependOn || !equalities.DeepEqual(p.scheduled, fresh)
	p.scheduled, p.movesDependOn = fresh, inputs
	if changed {
		f.openAll(p)
	}
	return changed
}

// ObserveProbe records the result of a probe. It returns the providers whose state has changed: the probed one, if its
// reachability or its virtual kubelets changed, and those whose moves were suspended or resumed because the broker
// suspects itself, or no longer does.
func (f *Federation) ObserveProbe(id string, probe Probe) (changed []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, known := f.providers[id]
	if !known {
		return nil
	}
	kubelets := make(map[string]bool, len(p.spec.VirtualNodes))
	for virtualNode := range p.spec.VirtualNodes {
		live, read := probe.Kubelets[virtualNode]
		kubelets[virtualNode] = live || !read && p.last.Kubelets[virtualNode]
	}
	probe.Kubelets = kubelets
	if p.last.Reached.After(probe.Reached) {
		probe.Reached = p.last.Reached // A lease that was not read, or that a replica has just taken, says nothing.
	}
	before, unreachableBefore, unusableBefore, first := p.last, !p.unreachableSince.IsZero(), p.unusable(), !p.probed
	suspected, suspended := f.suspicious(), map[string]bool{}
	for other, q := range f.providers {
		suspended[other] = f.movesSuspended(q, suspected)
	}
	p.probed, p.last = true, probe
	opened := f.openUntried(p, id)
	f.observeOutcome(p, &probe, first)
	suspects := f.suspicious()
	if (suspected || suspects) && probe.Ended.After(f.suspectedAt) {
		f.suspectedAt = probe.Ended
	}
	for other, q := range f.providers {
		if suspended[other] != f.movesSuspended(q, suspects) || other == id && (first || opened ||
			unreachableBefore != !p.unreachableSince.IsZero() || unusableBefore != p.unusable() || before.Answered != probe.Answered ||
			!maps.Equal(before.Kubelets, kubelets)) {
			changed = append(changed, other)
		}
	}
	return changed
}

// observeOutcome records whether a provider answered a probe. A provider that is alive ends an outage just like one
// that is ready. Neither its own rejections nor the failures of the broker's network path, to which a virtual kubelet
// testifies, count for its KPIs.
func (f *Federation) observeOutcome(p *provider, probe *Probe, first bool) {
	witnessed := !probe.Reached.IsZero() && probe.Ended.Sub(probe.Reached) < witnessProbes*f.cfg.ProbeInterval
	if probe.Answered || !probe.Alive && !witnessed {
		p.tracker.Probe(probe.Ended, probe.Answered, probe.Took)
	}
	if probe.Answered {
		p.answered++
		p.unusableProbes = 0
	} else {
		p.failed++
		p.unusableProbes++
	}
	if probe.Answered || probe.Alive {
		p.failedProbes, p.firstFailed = 0, time.Time{}
		if first && !p.unreachableSince.IsZero() {
			p.unreachableSince, p.failoverFrom = probe.Ended, probe.Ended // The outage that the leader before saw was over meanwhile.
		}
		if p.answeredProbes++; p.answeredProbes >= answeredProbesUntilReachable || p.unreachableSince.IsZero() {
			p.answeredProbes, p.unreachableSince = 0, time.Time{}
		}
	} else {
		p.answeredProbes = 0
		if p.failedProbes++; p.failedProbes == 1 {
			p.firstFailed = probe.Ended
		}
		switch {
		case witnessed:
			p.unreachableSince, p.last.Reason = time.Time{}, v1alpha1.ReasonKubeletReaches
		case first && !p.unreachableSince.IsZero():
			p.failoverFrom = probe.Ended.Add(-p.earlier)
		case p.failedProbes < failedProbesUntilUnreachable || !p.unreachableSince.IsZero():
		case probe.Reached.After(p.firstFailed):
			p.unreachableSince, p.failoverFrom = probe.Reached, probe.Reached
		default:
			p.unreachableSince, p.failoverFrom = p.firstFailed, p.firstFailed
		}
	}
	p.confirmed = p.confirmed || probe.Answered && p.unreachableSince.IsZero() || p.failedProbes >= failedProbesUntilUnreachable ||
		p.unusable() || p.answered+p.failed >= probesUntilConfirmed
}

// unusable reports whether a provider is alive, but as many probes in a row were not answered as make a silent one
// unreachable.
func (p *provider) unusable() bool {
	return p.unusableProbes >= failedProbesUntilUnreachable && p.unreachableSince.IsZero()
}

// markUnclean returns the provider's id if it was not unclean before.
func (p *provider) markUnclean(id string) string {
	p.moved++
	if p.unclean {
		return ""
	}
	p.unclean = true
	return id
}

// ObserveClean records that a provider no longer runs pods that were moved away. It has no effect if pods were moved
// away since Provider returned moved.
func (f *Federation) ObserveClean(id string, moved int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.providers[id]; p != nil && p.moved == moved {
		p.unclean = false
	}
}

// Prices returns the prices of all providers that are known to the scheduler.
func (f *Federation) Prices() map[string]price.Lists {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]price.Lists, len(f.providers))
	for id, p := range f.providers {
		if p.scheduled.ID != "" { // Otherwise they are not known yet.
			all[id] = p.scheduled.Prices
		}
	}
	return all
}

// Knows reports whether a provider is known.
func (f *Federation) Knows(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.providers[id] != nil
}

// Confirmed reports whether a provider is known and confirmed (Provider).
func (f *Federation) Confirmed(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.providers[id]
	return p != nil && p.confirmed
}

// Provider returns the state of a provider; false if the provider is not known.
func (f *Federation) Provider(id string) (Provider, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, known := f.providers[id]
	if !known {
		return Provider{}, false
	}
	out := Provider{
		Probed: p.probed, Confirmed: p.confirmed, UnreachableSince: p.unreachableSince, LastProbe: p.last.Ended, Problem: p.last.Problem,
		Unusable: p.unusable(), Reason: p.last.Reason,
		Kubelets: maps.Clone(p.last.Kubelets), Draining: p.movesDependOn.draining,
		Unclean: p.unclean, Answers: p.unreachableSince.IsZero() && p.last.Answered, Moved: p.moved,
		RemoteNamespaces: p.spec.RemoteNamespaces, Granted: resources.Amounts{},
		KPIs: p.tracker.Status(), Assigned: map[string]Assigned{},
		MovesWaiting: f.movesWaiting(id), Closed: p.closedOf(), Reserved: f.reservedOf(id),
		ProbesAnswered: p.answered, ProbesFailed: p.failed, Assignments: p.assignments, Refusals: maps.Clone(p.refusals),
	}
	if out.Draining {
		out.Staying = f.staying(id)
	}
	for i := range p.scheduled.Slices {
		out.Granted.Add(p.scheduled.Slices[i].Granted)
	}
	for virtualNode := range p.spec.VirtualNodes {
		resources, pods := f.scheduler.Assigned(scheduler.Place{Provider: id, VirtualNode: virtualNode})
		out.Assigned[virtualNode] = Assigned{Resources: resources, Pods: pods}
	}
	return out, true
}

// staying returns the pods at a provider that cannot leave it; the example is the first by name.
func (f *Federation) staying(provider string) (staying disruption.Waiting) {
	for uid, p := range f.pods {
		if !p.nowhere || f.scheduler.PlaceOf(scheduler.HolderOf(uid)).Provider != provider {
			continue
		}
		staying.Pods++
		if name := p.name.String(); staying.Example == "" || name < staying.Example {
			staying.Example = name
		}
	}
	return staying
}

// Providers returns the ids of all providers, sorted.
func (f *Federation) Providers() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.providers))
}

// Room adds up the capacity of the Node: the grants of providers that can be assigned pods, whose number it counts, and
// the assigned requests elsewhere, or beyond a grant. kube-scheduler subtracts all pods of the Node from it, except
// those that have ended (NewInformerFactory in kube-scheduler's pkg/scheduler). So the Node has no capacity for the
// requests of ended pods, and extra capacity for the pods that wait for a provider: otherwise pods that no provider
// fits would keep others from the Node. Unlimited means that a VirtualNode which can be assigned pods does not limit
// their number.
func (f *Federation) Room() (room resources.Amounts, usable int, unlimited bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	room = resources.Amounts{}
	loads := f.scheduler.Loads()
	for _, p := range f.scheduler.Providers() {
		if !p.Schedulable() || !p.Ready {
			continue
		}
		usable++
		for _, slice := range p.Slices {
			at := scheduler.Place{Provider: p.ID, VirtualNode: slice.VirtualNode}
			addRoom(room, slice.Granted, loads[at])
			delete(loads, at)
			if _, limited := slice.Granted[corev1.ResourcePods]; !limited {
				unlimited = true
			}
		}
	}
	for _, load := range loads {
		addRoom(room, nil, load)
	}
	for uid, p := range f.pods {
		if p.requests != nil && f.scheduler.PlaceOf(scheduler.HolderOf(uid)) == (scheduler.Place{}) {
			room.Add(p.requests)
		}
	}
	return room, usable, unlimited
}

// addRoom adds the granted amounts, or the assigned amounts where they are larger, less the amounts that ended pods hold.
func addRoom(room, granted resources.Amounts, load scheduler.Load) {
	add := func(name corev1.ResourceName, amount int64) {
		room[name] = resources.Sum(room[name], amount-load.Ended[name])
	}
	for name, amount := range granted {
		add(name, max(amount, load.Assigned[name]))
	}
	for name, amount := range load.Assigned {
		if _, is := granted[name]; !is {
			add(name, amount)
		}
	}
}
