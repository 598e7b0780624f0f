package histories

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
)

// shadowPods is Liqo's controller of ShadowPods at a provider: Reconcile in its
// pkg/liqo-controller-manager/offloading/shadowpod-controller, v1.2.0. It reads the ShadowPod and the pod from caches
// and acts on that state even if the ShadowPod is gone by then: a webhook for pods may delay its request by up to 30 s.
type shadowPods struct {
	mu sync.Mutex
	// queued holds the ShadowPods that are being reconciled or queued; true means that another run is due. failures
	// counts consecutive failures.
	queued   map[types.NamespacedName]bool
	failures map[types.NamespacedName]int
}

// add queues a ShadowPod. One worker at a time reconciles it.
func (c *shadowPods) add(p *provider, key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queued == nil {
		c.queued, c.failures = map[types.NamespacedName]bool{}, map[types.NamespacedName]int{}
	}
	if _, queued := c.queued[key]; queued {
		c.queued[key] = true
		return
	}
	c.queued[key] = false
	p.soon("reconcile "+key.Name, 20, 250, func() { c.work(p, key) })
}

func (c *shadowPods) work(p *provider, key types.NamespacedName) {
	c.mu.Lock()
	c.queued[key] = false
	c.mu.Unlock()
	err := errStalled
	if !p.is(func() bool { return p.stalled > 0 }) {
		err = p.reconcile(key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delay := 5 * time.Millisecond
	switch {
	case err != nil: // controller-runtime's exponential back-off.
		c.failures[key]++
		delay = min(30*time.Second, 5*time.Millisecond<<min(c.failures[key], 14))
	case !c.queued[key]:
		delete(c.queued, key)
		delete(c.failures, key)
		return
	default:
		delete(c.failures, key)
	}
	p.world.after(delay, func() { c.work(p, key) })
}

var errStalled = errors.New("the controller does nothing")

// is evaluates a condition of the provider's fault state under the lock.
func (p *provider) is(what func() bool) bool {
	p.weather.mu.Lock()
	defer p.weather.mu.Unlock()
	return what()
}

// reconcile updates the pod of a ShadowPod and the phase of the ShadowPod.
func (p *provider) reconcile(key types.NamespacedName) error {
	found, err := p.server.find(typeOf[offloadingv1beta1.ShadowPod](), key)
	if err != nil {
		return nil
	}
	shadow := found.(*offloadingv1beta1.ShadowPod)
	if phase := shadow.Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
		return nil // Liqo's controller does not recreate the pod: the ShadowPod of an evicted pod stays as it is.
	}
	there, err := p.server.find(typeOf[corev1.Pod](), key)
	if err != nil {
		return p.admit(copyOf(shadow))
	}
	// It writes the labels and annotations of the ShadowPod to the pod, even if the pod was made from an earlier
	// ShadowPod of that name.
	same := maps.Equal(there.GetLabels(), shadow.Labels) && maps.Equal(there.GetAnnotations(), shadow.Annotations)
	if phase := there.(*corev1.Pod).Status.Phase; same && phase == shadow.Status.Phase {
		return nil
	}
	if _, err := p.server.update("shadowpod-controller", there, false, func(fresh object) error {
		fresh.SetResourceVersion("")
		if fresh.GetUID() != there.GetUID() {
			return errors.New("it is another one")
		}
		fresh.SetLabels(shadow.Labels)
		fresh.SetAnnotations(shadow.Annotations)
		return nil
	}); err != nil {
		return err
	}
	_, err = p.server.update("shadowpod-controller", shadow, true, func(fresh object) error {
		if fresh.GetResourceVersion() != shadow.ResourceVersion {
			return kerrors.NewConflict(resourceOf(typeOf[offloadingv1beta1.ShadowPod]()), key.Name, errors.New("it has changed"))
		}
		fresh.(*offloadingv1beta1.ShadowPod).Status.Phase = there.(*corev1.Pod).Status.Phase
		return nil
	})
	return err
}

// admit creates the pod of a ShadowPod. Webhooks for pods may delay it; the ShadowPod may be deleted meanwhile.
func (p *provider) admit(shadow *offloadingv1beta1.ShadowPod) error {
	pod := podOf(keyOf(shadow))
	pod.Labels, pod.Annotations, pod.Spec, pod.Status.Phase = shadow.Labels, shadow.Annotations, shadow.Spec.Pod, corev1.PodPending
	pod.Spec.NodeName = "worker"
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "offloading.liqo.io/v1beta1", Kind: "ShadowPod", Name: shadow.Name, UID: shadow.UID, Controller: ptr.To(true),
	}}
	pod.Status.QOSClass = corev1.PodQOSBurstable
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now())},
	}
	chance := p.weather.draw("admission " + shadow.Name)
	held := time.Duration(1+chance>>8%20) * time.Millisecond
	if p.slowAdmission && chance%2 == 0 {
		held = time.Duration(chance>>8%25_000) * time.Millisecond
	}
	if !newProcess(p.world.ctx, "shadowpod-controller").sleep(p.world.ctx, held) {
		return context.Canceled
	}
	if p.is(func() bool { return p.strict > 0 }) {
		return kerrors.NewForbidden(resourceOf(typeOf[corev1.Pod]()), pod.Name, errors.New("minimum memory usage per Container is 64Mi"))
	}
	if p.is(func() bool { return p.holds > 0 }) {
		pod.Finalizers = []string{holder}
	}
	return p.server.create("shadowpod-controller", pod)
}

// holder is a finalizer that a controller of the provider puts on pods.
const holder = "histories/holder"

// ownedBy returns the UID of the ShadowPod that a pod was made from.
func ownedBy(pod object) types.UID {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.UID
	}
	return ""
}

// collect is the garbage collector: it deletes the pod of a ShadowPod that is gone.
func (p *provider) collect(shadow object) {
	key := keyOf(shadow)
	p.soon("collect "+key.Name, 10, 200, func() { p.deleteOwned(key, shadow.GetUID()) })
}

func (p *provider) deleteOwned(key types.NamespacedName, owner types.UID) {
	there, err := p.server.find(typeOf[corev1.Pod](), key)
	if err != nil || ownedBy(there) != owner {
		return
	}
	_ = p.server.remove("gc", there, ptr.To(int64(2)), &metav1.Preconditions{UID: ptr.To(there.GetUID())})
}

// verifyOwner is also the garbage collector: it asks the API server for an owner that it does not know, and deletes a
// pod whose owner does not exist (attemptToDeleteItem in Kubernetes' pkg/controller/garbagecollector).
func (p *provider) verifyOwner(pod *corev1.Pod) {
	key, owner := keyOf(pod), ownedBy(pod)
	if found, err := p.server.find(typeOf[offloadingv1beta1.ShadowPod](), key); err == nil && found.GetUID() == owner {
		return
	}
	p.soon("verify the owner of "+key.Name, 200, 1500, func() { p.deleteOwned(key, owner) })
}
