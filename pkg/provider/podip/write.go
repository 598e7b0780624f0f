package podip

import (
	"context"
	"errors"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// change is an update of the annotations of a pod that is written together with its next status.
type change struct {
	// local and remote are the resourceVersions of the pods that the change was computed from.
	local, remote string
	// annotations is a merge patch; nil changes nothing.
	annotations map[string]any
	// handled is true once updateStatus was called with the change.
	handled bool
}

// errChanged means that a pod has changed since the change was computed. The pod is requeued.
var errChanged = errors.New("the pod has changed since its location was computed")

// changeKey is the key of a change in a context.
type changeKey struct{}

// updateStatus writes a status together with the change in the context. The API server accepts both in one request
// (podStatusStrategy in Kubernetes' pkg/registry/core/pod). The error is a conflict if Liqo has built the status from
// other versions of the pods than the change.
func (p localPods) updateStatus(ctx context.Context, pod *corev1.Pod, opts metav1.UpdateOptions) (*corev1.Pod, error) {
	with, _ := ctx.Value(changeKey{}).(*change)
	if with == nil {
		return p.PodInterface.UpdateStatus(ctx, pod, opts)
	}
	with.handled = true
	if remote, _ := p.remote.Get(pod.Name); remote == nil || remote.ResourceVersion != with.remote || pod.ResourceVersion != with.local {
		return nil, kerrors.NewConflict(corev1.Resource("pods"), pod.Name, errChanged)
	}
	changed := *pod
	changed.Annotations = maps.Clone(pod.Annotations)
	if changed.Annotations == nil && with.annotations != nil {
		changed.Annotations = map[string]string{}
	}
	for key, value := range with.annotations {
		if text, is := value.(string); is {
			changed.Annotations[key] = text
		} else {
			delete(changed.Annotations, key)
		}
	}
	return p.PodInterface.UpdateStatus(ctx, &changed, opts)
}

// ownWrites are the latest writes of pods that the cache does not show yet. Another write before that would only get a
// conflict.
type ownWrites struct {
	mu sync.Mutex
	// before has the resourceVersion that the write replaced, by the pod's name; guarded by mu.
	before map[string]string
}

// observe records a write and the resourceVersion that it replaced.
func (w *ownWrites) observe(version string, written *corev1.Pod) {
	if written.ResourceVersion == version {
		return // The write changed nothing: the cache will show no new version.
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.before == nil {
		w.before = map[string]string{}
	}
	w.before[written.Name] = version
}

// forget drops the recorded write of a pod.
func (w *ownWrites) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.before, name)
}

// awaited reports whether the cache does not show the last write of a pod yet. The event with that write enqueues the
// pod. cached is nil if the pod is deleted.
func (w *ownWrites) awaited(name string, cached *corev1.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, is := w.before[name]
	if is && (cached == nil || cached.ResourceVersion != before) {
		delete(w.before, name)
		return false
	}
	return is
}

// localClient is a client of this cluster that writes pod statuses with updateStatus. The types below are the path to
// the pods.
type localClient struct {
	kubernetes.Interface
	// remote lists the pods with the addresses that the remote cluster shows.
	remote corev1listers.PodNamespaceLister
	writes *ownWrites
}

func (c localClient) CoreV1() corev1client.CoreV1Interface {
	return localGroup{CoreV1Interface: c.Interface.CoreV1(), client: c}
}

type localGroup struct {
	corev1client.CoreV1Interface
	client localClient
}

func (g localGroup) Pods(namespace string) corev1client.PodInterface {
	return localPods{PodInterface: g.CoreV1Interface.Pods(namespace), localClient: g.client}
}

type localPods struct {
	corev1client.PodInterface
	localClient
}

func (p localPods) UpdateStatus(ctx context.Context, pod *corev1.Pod, opts metav1.UpdateOptions) (*corev1.Pod, error) {
	written, err := p.updateStatus(ctx, pod, opts)
	if err == nil {
		p.writes.observe(pod.ResourceVersion, written)
	}
	return written, err
}
