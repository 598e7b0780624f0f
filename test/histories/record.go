package histories

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
)

// judgedTimes returns the brokers' times in the form that the judge needs.
func judgedTimes() judge.Times {
	t := times()
	return judge.Times{
		ProbeInterval: t.ProbeInterval, ProbeTimeout: t.ProbeTimeout, FailoverAfter: t.FailoverAfter, PendingTimeout: t.PendingTimeout,
		RefusalMemory: t.RefusalMemory, StatusInterval: t.StatusInterval, Noticed: 40 * time.Second, Flap: 16 * time.Second,
	}
}

// record returns the record of the history so far.
func (o *outcome) record() *judge.Record {
	r := &judge.Record{
		Began: o.began, Ended: time.Now(), Home: o.world.home.cluster(), Node: brokerNode, Times: judgedTimes(), NotYet: missing(),
	}
	for _, p := range o.world.providers {
		of := &judge.Provider{ID: p.id, Cluster: p.server.cluster()}
		p.weather.mu.Lock()
		of.Answers = slices.Clip(p.weather.answers) // They are only appended to.
		p.weather.mu.Unlock()
		for _, s := range p.slices {
			of.Slices = append(of.Slices, judge.Slice{VirtualNode: s.virtualNode, Millis: int64(s.cpus) * 1000})
		}
		for _, s := range p.namesakes {
			of.Slices = append(of.Slices, judge.Slice{VirtualNode: s.virtualNode, Millis: int64(s.cpus) * 1000, Gone: true})
		}
		r.Providers = append(r.Providers, of)
	}
	for _, f := range o.history.Faults {
		p := o.world.providers[f.Provider]
		fault := judge.Fault{Kind: f.Kind, Provider: p.id, From: o.began.Add(f.At), Until: o.began.Add(f.until())}
		if f.Kind == part {
			fault.VirtualNode = f.of(p).virtualNode
			fault.Until = o.world.joinedAgain(f.of(p), fault.From, fault.Until)
		}
		r.Faults = append(r.Faults, fault)
		if f.Kind == namesake {
			of := o.world.namesake(p, f)
			r.Faults = append(r.Faults, judge.Fault{
				Kind: part, Provider: of.provider.id, VirtualNode: of.virtualNode, From: fault.Until, Until: r.Ended,
			})
		}
	}
	if i := o.history.interrupter; i != nil && i.happens.Kind != "" {
		r.Faults = append(r.Faults, i.happens)
	}
	return r
}

func (s *server) cluster() judge.Cluster {
	of := func(t reflect.Type) []change {
		record, _ := s.since(t, 0)
		return record
	}
	s.mu.Lock()
	requests := s.requests
	s.mu.Unlock()
	return judge.Cluster{
		Requests: requests,
		Pods:     of(typeOf[corev1.Pod]()), ShadowPods: of(typeOf[offloadingv1beta1.ShadowPod]()),
		Leases: of(typeOf[coordinationv1.Lease]()), Volumes: of(typeOf[corev1.PersistentVolume]()),
		Nodes: of(typeOf[corev1.Node]()), ProviderClusters: of(typeOf[v1alpha1.ProviderCluster]()),
	}
}

// judge returns the rules that the broker broke, in words; nothing if there are none.
func (o *outcome) judge() []string {
	faults := o.record().Violations()
	if o.unsettled != "" {
		faults = append(faults, "not settled: "+o.unsettled)
	} else if o.untrue != "" {
		faults = append(faults, "not true: "+o.untrue)
	}
	o.world.mu.Lock()
	defer o.world.mu.Unlock()
	if o.world.panicked != "" {
		faults = append(faults, "a broker panicked: "+o.world.panicked)
	}
	if o.late != "" {
		faults = append(faults, "written although all is well: "+o.late)
	}
	return faults
}

// stories tells what happened to each pod.
func (o *outcome) stories() string {
	var text strings.Builder
	r := o.record()
	for i := range o.history.Pods {
		name := o.history.Pods[i].Name
		fmt.Fprintf(&text, "%s:\n%s", name, r.Story(name))
	}
	return text.String()
}
