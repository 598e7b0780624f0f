package cli

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// drainage is how far providers are drained. Two followers feed it.
type drainage struct {
	s    *Session
	node string
	// ids are those of the providers, in the order asked for.
	ids  []string
	stop context.CancelCauseFunc

	mu        sync.Mutex
	providers map[string]*drained
	// homes is the provider of each of their virtual nodes.
	homes map[string]string
	// pods are those that are there, or about to leave.
	pods map[client.ObjectKey]drainedPod
	// waiting are those that have left and have no other place yet.
	waiting map[client.ObjectKey]bool
	counted bool
}

// drained is a provider.
type drained struct {
	// since is the generation of the spec that says to drain.
	since int64
	// noticed is set when the broker knows.
	noticed bool
}

// drainedPod is a pod at such a provider.
type drainedPod struct {
	provider string
	leaving  bool
}

func newDrainage(s *Session, node string) *drainage {
	return &drainage{
		s: s, node: node, providers: map[string]*drained{}, homes: map[string]string{},
		pods: map[client.ObjectKey]drainedPod{}, waiting: map[client.ObjectKey]bool{},
	}
}

func (d *drainage) add(pc *v1alpha1.ProviderCluster) {
	if _, ok := d.providers[pc.Name]; ok {
		return
	}
	d.ids = append(d.ids, pc.Name)
	d.providers[pc.Name] = &drained{since: pc.Generation}
	d.see(pc)
}

// see takes in what the status of a provider says.
func (d *drainage) see(pc *v1alpha1.ProviderCluster) {
	p := d.providers[pc.Name]
	p.noticed = p.noticed || pc.Status.ObservedGeneration >= p.since
	for i := range pc.Status.VirtualNodes {
		d.homes[pc.Status.VirtualNodes[i].Name] = pc.Name
	}
}

// empty says whether the broker knows and no pod is left.
func (d *drainage) empty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.emptyLocked()
}

func (d *drainage) emptyLocked() bool {
	for _, p := range d.providers {
		if !p.noticed {
			return false
		}
	}
	return d.counted && len(d.pods) == 0
}

// check ends the waiting when there is nothing left to wait for. The caller holds the lock.
func (d *drainage) check() {
	if d.emptyLocked() {
		d.stop(errEmpty)
	}
}

// podsAt names the pods of a provider, sorted. The caller holds the lock.
func (d *drainage) podsAt(provider string) []string {
	var names []string
	for key, pod := range d.pods {
		if pod.provider == provider {
			names = append(names, key.String())
		}
	}
	slices.Sort(names)
	return names
}

// report says that it is done.
func (d *drainage) report() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range d.ids {
		pc := &v1alpha1.ProviderCluster{}
		pc.Name = id
		if err := d.s.say(pc, "drained"); err != nil {
			return err
		}
	}
	if n := len(d.waiting); n > 0 {
		d.s.warn(fmt.Sprintf("%d of the pods that left wait for another provider: get placements -A -o wide says why", n))
	}
	return nil
}

// where is the provider that a pod has to leave, and whether it is about to; "" if it is at none of them, or has ended.
func (d *drainage) where(pod *corev1.Pod) drainedPod {
	if placement.Terminal(pod) {
		return drainedPod{}
	}
	provider := pod.Labels[v1alpha1.ProviderLabel]
	if provider == "" {
		provider = d.homes[placement.PlaceOf(pod)]
	}
	if d.providers[provider] == nil {
		return drainedPod{}
	}
	return drainedPod{provider: provider, leaving: pod.Labels[v1alpha1.VirtualNodeLabel] == ""}
}

// pod takes in where a pod is, and says so when that has changed. The caller holds the lock.
func (d *drainage) pod(pod *corev1.Pod) error {
	key := client.ObjectKeyFromObject(pod)
	before, known := d.pods[key]
	at := d.where(pod)
	_, waited := d.waiting[key]
	next := pod.Labels[v1alpha1.ProviderLabel]
	switch {
	case at.provider != "":
		d.pods[key] = at
		if d.counted && at != before {
			return d.tell(key, at)
		}
		return nil
	case !known && !waited:
		return nil
	}
	delete(d.pods, key)
	switch {
	case placement.Terminal(pod):
		delete(d.waiting, key)
		return d.line("pod %s has ended", key)
	case next != "":
		delete(d.waiting, key)
		return d.line("pod %s moved to %s", key, next)
	case !waited:
		d.waiting[key] = true
		return d.line("pod %s has left %s and waits", key, before.provider)
	}
	return nil
}

func (d *drainage) tell(key client.ObjectKey, at drainedPod) error {
	if at.leaving {
		return d.line("pod %s leaves %s", key, at.provider)
	}
	return d.line("pod %s is at %s", key, at.provider)
}

func (d *drainage) line(format string, args ...any) error {
	_, err := fmt.Fprintf(d.s.Out, format+"\n", args...)
	return err
}

// seePods takes in all pods there are.
func (d *drainage) seePods(objects []client.Object) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	there := map[client.ObjectKey]bool{}
	for _, o := range objects {
		there[client.ObjectKeyFromObject(o)] = true
		if pod, ok := o.(*corev1.Pod); ok {
			if err := d.pod(pod); err != nil {
				return err
			}
		}
	}
	for key := range d.pods {
		if !there[key] {
			delete(d.pods, key)
		}
	}
	for key := range d.waiting {
		if !there[key] {
			delete(d.waiting, key)
		}
	}
	if d.counted {
		return nil
	}
	d.counted = true
	for _, id := range d.ids {
		if pods := d.podsAt(id); len(pods) > 0 {
			if err := d.line("%s has %s", id, counted(pods)); err != nil {
				return err
			}
		}
	}
	return nil
}
