package state

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

const (
	// nameMemory is how long the place of a deleted pod is remembered, maxNames for how many pods of one namespace.
	nameMemory = time.Hour
	maxNames   = 20_000
)

// Earlier is a pod that is gone here, and may run at its provider: it was deleted by force.
type Earlier struct {
	UID types.UID
	At  scheduler.Place
	// Seen means that its provider had made the pod: no creation of its ShadowPod is on the way.
	Seen bool
	// Released means that its virtual kubelet has removed the ShadowPod: it has ended here before it was gone.
	Released bool
	gone     time.Time
}

// mayRun reports whether containers of an assigned pod may run when it is gone here. A virtual kubelet reports the end
// of a pod before it releases the pod; Kubernetes' garbage collector of pods makes a pod Failed whose containers may
// still run. If a pod was evicted at its provider, Liqo's controller there creates another one, as long as the status
// of the ShadowPod does not show the end.
func mayRun(of *corev1.Pod) bool {
	running := func(c corev1.ContainerStatus) bool { return c.State.Running != nil }
	return !placement.Terminal(of) || placement.DisruptedThere(of) ||
		slices.ContainsFunc(of.Status.ContainerStatuses, running) || slices.ContainsFunc(of.Status.InitContainerStatuses, running)
}

// remember keeps the place of a pod that is gone.
func (f *Federation) remember(uid types.UID, p *pod) {
	at, _ := f.scheduler.Counted(scheduler.HolderOf(uid))
	if at == (scheduler.Place{}) || !p.mayRun || p.left == at {
		return
	}
	names := f.earlier[p.name.Namespace]
	if names == nil {
		names = map[string]Earlier{}
		f.earlier[p.name.Namespace] = names
	}
	if _, known := names[p.name.Name]; known || len(names) < maxNames {
		seen := (p.shown || p.there == PodThere) && !p.remaking
		names[p.name.Name] = Earlier{UID: uid, At: at, Seen: seen, Released: p.ended, gone: f.cfg.Clock.Now()}
	}
}

// Earlier returns the pod that had the name of a pod before, and may run at its old provider; false if there is none.
func (f *Federation) Earlier(of *corev1.Pod) (Earlier, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recordOf(of) // That the earlier one is gone may not be known yet.
	earlier, known := f.earlier[of.Namespace][of.Name]
	return earlier, known
}

// ObserveEarlier records where an earlier pod of a name is.
func (f *Federation) ObserveEarlier(name types.NamespacedName, at scheduler.Place, seen bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.earlier[name.Namespace] == nil {
		f.earlier[name.Namespace] = map[string]Earlier{}
	}
	f.earlier[name.Namespace][name.Name] = Earlier{At: at, Seen: seen, gone: f.cfg.Clock.Now()}
}

// ForgetEarlier records that no earlier pod of a name runs at its old provider.
func (f *Federation) ForgetEarlier(name types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgetEarlier(name)
}

func (f *Federation) forgetEarlier(name types.NamespacedName) {
	delete(f.earlier[name.Namespace], name.Name)
	if len(f.earlier[name.Namespace]) == 0 {
		delete(f.earlier, name.Namespace)
	}
}

// expireNames forgets the pods that are gone for long.
func (f *Federation) expireNames(now time.Time) {
	for namespace, names := range f.earlier {
		for name, earlier := range names {
			if now.Sub(earlier.gone) > nameMemory {
				f.forgetEarlier(types.NamespacedName{Namespace: namespace, Name: name})
			}
		}
	}
}

// ObserveNameFree records that no provider has an earlier pod of the name of a pod (Pod.NameFree).
func (f *Federation) ObserveNameFree(of *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recordOf(of).nameFree = true
}
