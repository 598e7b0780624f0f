package simulate

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/providers"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

const (
	// nodeName is the name of the broker's Node.
	nodeName = "liqo-broker"
	// steadyInterval is how often a provider is probed, and decisions get its KPIs, to which nothing happens: a probe in
	// each interval of the broker would have the same answer.
	steadyInterval = 5 * time.Minute
)

// provider is a provider cluster, and the broker's objects for it.
type provider struct {
	object        *v1alpha1.ProviderCluster
	virtualNodes  []*offloadingv1beta1.VirtualNode
	start         Distribution
	stop, latency time.Duration

	// silent means that it does not answer; unseen has the reports that are due when it does.
	silent bool
	unseen []func()
	// probed is the number of the last probe that was scheduled. unclean means that it may run pods that were moved
	// away, cleaning that it is about to remove them.
	probed            int
	unclean, cleaning bool
	// priced is when its next price list applies.
	priced time.Time
}

// startProviders makes the providers, and has each probed once, before any pod arrives.
func (s *simulation) startProviders() {
	for i := range s.scenario.Providers {
		of := &s.scenario.Providers[i]
		for _, id := range of.ids() {
			s.order = append(s.order, newProvider(of, id, s.clock.now))
		}
	}
	for i := range s.scenario.ProviderClusters {
		s.order = append(s.order, providerOf(&s.scenario.ProviderClusters[i]))
	}
	for i, p := range s.order {
		s.providers[p.object.Name] = p
		s.state.SetProvider(p.object.Name, s.specOf(p), &p.object.Status)
		s.recordGrant(p.object.Name, s.clock.now, p.granted())
		s.probe(p)
		if p.silent {
			s.probe(p) // It is unreachable, and not only since now.
		}
		s.refresh(p)
		s.awaitProbe(p, s.probeInterval*time.Duration(i+1)/time.Duration(len(s.order)))
	}
}

// newProvider makes a provider of a scenario.
func newProvider(of *Provider, id string, start time.Time) *provider {
	pc := &v1alpha1.ProviderCluster{
		ObjectMeta: metav1.ObjectMeta{Name: id, Labels: of.Labels},
		Spec:       v1alpha1.ProviderClusterSpec{Attributes: of.Attributes, Prices: of.Prices},
		Status: v1alpha1.ProviderClusterStatus{
			VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: id, Resources: v1alpha1.Resources{Granted: of.Granted}}},
			KPIs:         v1alpha1.KPIs{Uptime: uptimeUntil(start, of.KPIs.Uptime)},
		},
	}
	p := providerOf(pc)
	p.stop, p.latency = orDefault(of.Stop, defaultStop), orDefault(of.KPIs.Latency, defaultLatency)
	if of.Start.Mean.Duration > 0 {
		p.start = of.Start
	}
	return p
}

// providerOf makes a provider from a manifest. One that is not Ready does not answer until it recovers.
func providerOf(pc *v1alpha1.ProviderCluster) *provider {
	p := &provider{
		object: pc.DeepCopy(), start: Distribution{Mean: metav1.Duration{Duration: defaultStart}}, stop: defaultStop,
		latency: defaultLatency, silent: meta.IsStatusConditionFalse(pc.Status.Conditions, v1alpha1.ProviderReady),
	}
	if took := pc.Status.KPIs.LatencyMilliseconds; took != nil {
		p.latency = time.Duration(*took) * time.Millisecond
	}
	for i := range pc.Status.VirtualNodes {
		vn := &pc.Status.VirtualNodes[i]
		p.virtualNodes = append(p.virtualNodes, &offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Name: vn.Name, Namespace: "liqo-tenant-" + pc.Name},
			Spec: offloadingv1beta1.VirtualNodeSpec{
				ClusterID: liqov1beta1.ClusterID(pc.Name), Labels: pc.Labels,
				ResourceQuota: corev1.ResourceQuotaSpec{Hard: vn.Resources.Granted},
			},
		})
	}
	p.object.Status = v1alpha1.ProviderClusterStatus{KPIs: pc.Status.KPIs, Conditions: pc.Status.Conditions}
	return p
}

// uptimeUntil returns a history in which each window of the uptime has a share: between two windows' beginnings the
// provider was down for one gap.
func uptimeUntil(now time.Time, share float64) v1alpha1.Uptime {
	if share == 0 {
		return v1alpha1.Uptime{}
	}
	windows := []time.Duration{30 * 24 * time.Hour, 7 * 24 * time.Hour, 24 * time.Hour, time.Hour, 0}
	u := v1alpha1.Uptime{Since: ptr.To(metav1.NewTime(now.Add(-windows[0]))), Until: ptr.To(metav1.NewTime(now))}
	for i := 0; share < 1 && i+1 < len(windows); i++ {
		from := now.Add(-windows[i])
		down := time.Duration(float64(windows[i]-windows[i+1]) * (1 - share))
		u.Gaps = append(u.Gaps, v1alpha1.Gap{From: metav1.NewTime(from), To: metav1.NewTime(from.Add(down)), Kind: v1alpha1.GapDown})
	}
	return u
}

func (p *provider) granted() resources.Amounts {
	sum := resources.Amounts{}
	for _, vn := range p.virtualNodes {
		sum.Add(resources.RoundDown(vn.Spec.ResourceQuota.Hard))
	}
	return sum
}

// namespaces returns the names of all consumers' namespaces, which are offloaded to each provider under the same name.
func (sc *Scenario) namespaces() map[string]string {
	names := map[string]string{}
	for i := range sc.Consumers {
		for k := range sc.Consumers[i].Workloads {
			name := sc.Consumers[i].Workloads[k].namespaceOf(&sc.Consumers[i])
			names[name] = name
		}
	}
	return names
}

// namespaceMap returns the NamespaceMap of each provider.
func (sc *Scenario) namespaceMap() *offloadingv1beta1.NamespaceMap {
	m := &offloadingv1beta1.NamespaceMap{}
	m.Spec.DesiredMapping = sc.namespaces()
	m.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{}
	for local, remote := range m.Spec.DesiredMapping {
		m.Status.CurrentMapping[local] = offloadingv1beta1.RemoteNamespaceStatus{
			RemoteNamespace: remote, Phase: offloadingv1beta1.MappingAccepted,
		}
	}
	return m
}

func (s *simulation) specOf(p *provider) state.ProviderSpec {
	spec := state.ProviderSpec{
		Enabled: p.object.Spec.IsEnabled(), Draining: p.object.Spec.Drain, VirtualNodes: map[string]bool{},
		RemoteNamespaces: s.namespaces.Spec.DesiredMapping,
	}
	for _, vn := range p.virtualNodes {
		spec.VirtualNodes[vn.Name] = false
	}
	return spec
}

// awaitProbe schedules the next probe of a provider, and no other one.
func (s *simulation) awaitProbe(p *provider, after time.Duration) {
	p.probed++
	number := p.probed
	s.after(after, func() {
		if p.probed != number {
			return
		}
		s.probe(p)
		s.refresh(p)
		at := scheduler.Place{Provider: p.object.Name, VirtualNode: p.virtualNodes[0].Name}
		if steady := !p.silent && !p.unclean && s.state.VirtualNode(at).UnreachableSince.IsZero(); steady {
			s.awaitProbe(p, max(s.probeInterval, steadyInterval))
			return
		}
		s.awaitProbe(p, s.probeInterval)
	})
}

// probe probes a provider now, or has waited for its answer until now.
func (s *simulation) probe(p *provider) {
	now := s.clock.now
	probe := state.Probe{Began: now, Ended: now, Answered: !p.silent, Took: p.latency, Kubelets: map[string]bool{}}
	if p.silent {
		probe.Began, probe.Took, probe.Problem = now.Add(-s.probeTimeout), 0, "no answer within "+s.probeTimeout.String()
	}
	for _, vn := range p.virtualNodes {
		probe.Kubelets[vn.Name] = true
	}
	for _, id := range slices.Sorted(slices.Values(s.state.ObserveProbe(p.object.Name, probe))) {
		s.refresh(s.providers[id])
	}
}

// refresh gives the scheduler the present state of a provider, as the controller of pkg/broker/providers does.
func (s *simulation) refresh(p *provider) {
	id, now := p.object.Name, s.clock.now
	known, ok := s.state.Provider(id)
	if !ok {
		return
	}
	updated := *p.object
	updated.Status = providers.StatusOf(p.object, &known, p.virtualNodes, nodeName)
	p.object, p.unclean = &updated, known.Unclean
	translated := placement.Provider(&updated, p.virtualNodes, s.mapped)
	s.recordPrices(id, now, translated.Prices)
	if s.state.Schedule(translated) {
		s.requeuePodsOf(id)
		s.requeueUnassigned()
	}
	if next, changes := translated.Prices.Next(now); changes && !next.Equal(p.priced) {
		p.priced = next
		s.at(next, func() { s.refresh(p) })
	}
	if known.Unclean && known.Answers && !p.cleaning {
		p.cleaning = true
		s.after(p.stop, func() { s.clean(p, known.Moved) })
	}
}

// clean records that a provider has removed the pods that were moved away while it could not be reached.
func (s *simulation) clean(p *provider, moved int) {
	p.cleaning = false
	if !p.silent {
		s.state.ObserveClean(p.object.Name, moved)
	}
	s.refresh(p)
}

// apply applies an event to its provider.
func (s *simulation) apply(e *Event) {
	p := s.providers[e.Provider]
	spec := p.object.Spec.DeepCopy()
	if e.Attributes != nil && spec.Attributes == nil {
		spec.Attributes = map[string]string{}
	}
	maps.Copy(spec.Attributes, e.Attributes)
	maps.DeleteFunc(spec.Attributes, func(_, value string) bool { return value == "" })
	if e.Prices != nil {
		spec.Prices = e.Prices
	}
	if e.Granted != nil {
		vn := p.virtualNodes[0].DeepCopy()
		vn.Spec.ResourceQuota.Hard = e.Granted
		p.virtualNodes = []*offloadingv1beta1.VirtualNode{vn}
	}
	switch e.Action {
	case Fail:
		s.setSilent(p, true)
	case Recover:
		s.setSilent(p, false)
	case Drain, Undrain:
		spec.Drain = e.Action == Drain
	case Cordon, Uncordon:
		spec.Cordoned = e.Action == Cordon
	case Disable, Enable:
		spec.Enabled = ptr.To(e.Action == Enable)
	}
	s.recordGrant(e.Provider, s.clock.now, p.granted())
	changed := *p.object
	changed.Spec = *spec
	p.object = &changed
	s.state.SetProvider(e.Provider, s.specOf(p), &p.object.Status)
	s.refresh(p)
}

// setSilent begins or ends an outage. When it ends, the virtual kubelet reports the starts and ends since.
func (s *simulation) setSilent(p *provider, silent bool) {
	if p.silent == silent {
		return
	}
	if silent {
		s.probe(p) // It was up until now: the last probe may have been steadyInterval ago.
	}
	p.silent = silent
	due := p.unseen
	p.unseen = nil
	for _, report := range due {
		report()
	}
	wait := s.probeInterval / 2
	if silent {
		wait += s.probeTimeout
	}
	s.awaitProbe(p, wait)
}

// requeuePodsOf reconciles the pods that are assigned to a provider, by their arrival.
func (s *simulation) requeuePodsOf(id string) {
	var there []*pod
	for _, p := range s.pods {
		if p.phase == assigned && p.place.Provider == id {
			there = append(there, p)
		}
	}
	slices.SortFunc(there, func(x, y *pod) int { return x.number - y.number })
	for _, p := range there {
		if p.phase == assigned {
			s.reconcile(p)
		}
	}
}
