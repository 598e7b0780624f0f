package histories

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
)

// kubeScheduler binds pods to the broker's Node as kube-scheduler does: when its caches show that the Node is Ready,
// not cordoned, and has capacity beside all bound pods that have not ended. For a pod that does not fit it sets
// PodScheduled=False. It retries after 1 to 10 s (podInitialBackoffSeconds and podMaxBackoffSeconds), even if nothing
// has changed; kube-scheduler would do that only after five minutes.
type kubeScheduler struct {
	world   *world
	process *process
	cache   *mirror
	// changed has an element when the cache has changed.
	changed chan struct{}
	tries   map[types.UID]attempts
	// assumed holds the pods that it has bound, until its cache shows the binding.
	assumed map[types.UID]*corev1.Pod
}

// attempts counts the failed attempts to bind one pod.
type attempts struct {
	failed int
	next   time.Time
}

func (w *world) runKubeScheduler() {
	p := newProcess(w.ctx, "kube-scheduler")
	s := &kubeScheduler{
		world: w, process: p, cache: newMirror(p, w.home, w.weather), changed: make(chan struct{}, 1),
		tries: map[types.UID]attempts{}, assumed: map[types.UID]*corev1.Pod{},
	}
	s.cache.unbound = true
	wake := func() {
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { wake() }, UpdateFunc: func(any, any) { wake() }, DeleteFunc: func(any) { wake() },
	}
	for _, of := range []*informer{s.pods(), s.nodes()} {
		if _, err := of.AddEventHandler(handler); err != nil || of.waitSynced(w.ctx) != nil {
			return
		}
	}
	for {
		timer := time.NewTimer(s.tryAll())
		select {
		case <-s.changed:
		case <-timer.C:
		case <-w.ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

func (s *kubeScheduler) pods() *informer  { return s.cache.informer(typeOf[corev1.Pod]()) }
func (s *kubeScheduler) nodes() *informer { return s.cache.informer(typeOf[corev1.Node]()) }

// tryAll tries each pod whose back-off has ended, and returns the delay until the next one's ends.
func (s *kubeScheduler) tryAll() (next time.Duration) {
	next = time.Hour
	for _, o := range s.pods().list() {
		pod := o.(*corev1.Pod)
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || s.assumed[pod.UID] != nil {
			continue
		}
		t := s.tries[pod.UID]
		if left := time.Until(t.next); left > 0 {
			next = min(next, left)
			continue
		}
		if why := s.try(pod); why != nil {
			t.failed++
			delay := min(time.Second<<(t.failed-1), 10*time.Second)
			t.next, next = time.Now().Add(delay), min(next, delay)
			s.tries[pod.UID] = t
		}
	}
	return next
}

// try binds a pod, or returns why it could not.
func (s *kubeScheduler) try(pod *corev1.Pod) error {
	if problem := s.problem(pod); problem != "" {
		_ = s.write(pod, "report", func() error {
			_, err := s.world.home.update(s.process.name, pod, true, scheduled(pod, corev1.PodCondition{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: problem,
			}))
			return err
		})
		return errors.New(problem)
	}
	s.assumed[pod.UID] = copyOf(pod)
	s.assumed[pod.UID].Spec.NodeName = brokerNode
	err := s.write(pod, "bind", func() error {
		_, err := s.world.home.update(s.process.name, pod, false, func(fresh object) error {
			bound := fresh.(*corev1.Pod)
			if bound.UID != pod.UID || bound.Spec.NodeName != "" || bound.DeletionTimestamp != nil {
				return errors.New("it is another one, is bound or is being deleted")
			}
			bound.Spec.NodeName = brokerNode
			return nil
		})
		if err == nil {
			_, err = s.world.home.update(s.process.name, pod, true,
				scheduled(pod, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}))
		}
		return err
	})
	if err != nil {
		delete(s.assumed, pod.UID)
	}
	return err
}

func (s *kubeScheduler) write(pod *corev1.Pod, verb string, do func() error) error {
	ctx, cancel := context.WithTimeout(s.process.ctx, 10*time.Second)
	defer cancel()
	return s.process.request(ctx, s.world.weather, verb+" "+pod.Name, true, do)
}

// scheduled returns a change that sets a condition of a pod. It fails if the name belongs to another pod now.
func scheduled(of *corev1.Pod, condition corev1.PodCondition) func(object) error {
	return func(fresh object) error {
		pod := fresh.(*corev1.Pod)
		if pod.UID != of.UID {
			return errors.New("it is another one")
		}
		for i := range pod.Status.Conditions {
			if pod.Status.Conditions[i].Type == condition.Type {
				pod.Status.Conditions[i] = condition
				return nil
			}
		}
		pod.Status.Conditions = append(pod.Status.Conditions, condition)
		return nil
	}
}

// problem returns why a pod does not fit on the Node; "" if it fits.
func (s *kubeScheduler) problem(pod *corev1.Pod) string {
	node, is := s.nodes().get(types.NamespacedName{Name: brokerNode}).(*corev1.Node)
	switch {
	case !is:
		return "there is no Node"
	case node.Spec.Unschedulable:
		return "the Node is cordoned"
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return "the Node is not Ready"
		}
	}
	bound, seen := []*corev1.Pod{}, map[types.UID]*corev1.Pod{}
	for _, o := range s.pods().list() {
		other := o.(*corev1.Pod)
		if assumed := s.assumed[other.UID]; other.Spec.NodeName == "" && assumed != nil {
			other, seen[other.UID] = assumed, assumed
		}
		bound = append(bound, other)
	}
	s.assumed = seen
	if free := judge.FreeOnNode(node, bound); free < int64(cpusOf(&pod.Spec))*1000 {
		return fmt.Sprintf("the Node has %d thousandths of a CPU free", free)
	}
	return ""
}
