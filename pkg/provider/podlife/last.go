package podlife

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podstatus"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
)

// lastStates holds the last states of remote pods that have ended, until their ends are reported.
type lastStates struct {
	mu sync.Mutex
	// pods by name; guarded by mu.
	pods map[string]*corev1.Pod
}

// observe is a cache.TransformFunc that trims remote pods. It records the pods that have ended before the cache
// changes: an event handler of the informer would run concurrently with the reflector. The event that follows enqueues
// the local pod, whose reconciliation forgets the state.
func (l *lastStates) observe(obj any) (any, error) {
	trimmed, err := transform.TrimRemotePod(obj)
	if remote, is := trimmed.(*corev1.Pod); is && placement.Terminal(remote) && own(remote) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.pods[remote.Name] = remote
	}
	return trimmed, err
}

// of returns the last state of a pod; nil if it is unknown.
func (l *lastStates) of(name string) *corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pods[name]
}

func (l *lastStates) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pods, name)
}

// forgetUnless forgets the last state of a pod unless keep returns true for it.
func (l *lastStates) forgetUnless(name string, keep func(*corev1.Pod) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := l.pods[name]; last != nil && !keep(last) {
		delete(l.pods, name)
	}
}

// lens is a transform.Lens that still shows the last state of a deleted pod.
func (l *lastStates) lens(indexer cache.Indexer) cache.Indexer { return withLast{indexer, l} }

type withLast struct {
	cache.Indexer
	last *lastStates
}

func (w withLast) GetByKey(key string) (any, bool, error) {
	obj, exists, err := w.Indexer.GetByKey(key)
	if err != nil || exists {
		return obj, exists, err
	}
	if _, name, err := cache.SplitMetaNamespaceKey(key); err == nil {
		if last := w.last.of(name); last != nil {
			return last, true, nil
		}
	}
	return nil, false, nil
}

// disrupting is a client of this cluster. Liqo reports a pod as failed when only its ShadowPod remains. This client
// adds to that status that the pod was deleted in the remote cluster. The types below are the path to the pods.
type disrupting struct{ kubernetes.Interface }

func (c disrupting) CoreV1() corev1client.CoreV1Interface {
	return disruptingGroup{c.Interface.CoreV1()}
}

type disruptingGroup struct{ corev1client.CoreV1Interface }

func (g disruptingGroup) Pods(namespace string) corev1client.PodInterface {
	return disruptingPods{g.CoreV1Interface.Pods(namespace)}
}

type disruptingPods struct{ corev1client.PodInterface }

func (p disruptingPods) UpdateStatus(ctx context.Context, pod *corev1.Pod, opts metav1.UpdateOptions) (*corev1.Pod, error) {
	if pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == forge.RemotePodTerminatedReason {
		pod = pod.DeepCopy()
		podstatus.Disrupt(&pod.Status, metav1.Now())
	}
	return p.PodInterface.UpdateStatus(ctx, pod, opts)
}
