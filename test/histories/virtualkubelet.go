package histories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podstatus"
)

const (
	// kubeletRequest is how long a virtual kubelet waits for an answer.
	kubeletRequest = 15 * time.Second
	leaseSeconds   = 15
)

// virtualKubelet is a process of Liqo's virtual kubelet with the changes of this project. It forwards the pods that are
// labelled with its VirtualNode, reports their status, and writes which pods it has released after they left.
type virtualKubelet struct {
	world    *world
	provider *provider
	slice    *slice
	process  *process
	local    *mirror
	remote   *mirror

	mu sync.Mutex
	// busy holds the pods that are being handled; true means that another run is due.
	busy map[string]bool
	// failures counts consecutive failures, by pod.
	failures map[string]int
	// assigned holds the assignments that this process may have forwarded. uncertain is when a creation got no answer.
	assigned  map[string]kubeletAssignment
	uncertain map[string]time.Time
	// removed holds the ShadowPods of pods that left, by name, until the cache shows another ShadowPod or none.
	removed map[string]types.UID
}

type kubeletAssignment struct {
	uid     types.UID
	id      string
	deleted bool
}

// startKubelet starts the virtual kubelet of a slice, and restarts it when it ends, as long as the VirtualNode exists.
func (w *world) startKubelet(s *slice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started++
	p := s.provider
	k := &virtualKubelet{
		world: w, provider: p, slice: s, process: newProcess(w.ctx, fmt.Sprintf("kubelet-%s-%d", s.virtualNode, w.started)),
		busy:     map[string]bool{},
		failures: map[string]int{}, assigned: map[string]kubeletAssignment{}, uncertain: map[string]time.Time{},
		removed: map[string]types.UID{},
	}
	k.local, k.remote = newMirror(k.process, w.home, w.weather), newMirror(k.process, p.server, p.weather)
	w.kubelets[s] = k
	w.spawn(func() {
		k.run()
		k.process.kill(errKilled)
		w.after(2*time.Second, func() {
			w.mu.Lock()
			current := w.kubelets[s] == k
			w.mu.Unlock()
			if current {
				w.startKubelet(s)
			}
		})
	})
}

func (k *virtualKubelet) virtualNode() string { return k.slice.virtualNode }

// run forwards pods once it holds the lease, and as long as it can renew it.
func (k *virtualKubelet) run() {
	renewed, connected := time.Time{}, time.Time{}
	chance := k.provider.weather.draw("connect")
	for serving := false; ; {
		if k.renew(!serving && !connected.IsZero() && time.Now().Before(connected)) {
			renewed = time.Now()
			if connected.IsZero() {
				connected = renewed
				if chance%3 == 0 {
					connected = renewed.Add(time.Duration(chance>>8%20) * time.Second)
				}
				continue
			}
			if !serving && !renewed.Before(connected) {
				serving = true
				k.serve()
			}
		}
		if serving && time.Since(renewed) > 10*time.Second || !k.process.sleep(k.process.ctx, 3*time.Second) || k.process.gate() != nil {
			return
		}
		if serving && time.Since(renewed) > leaseSeconds*time.Second {
			return // The process was paused.
		}
	}
}

// renew acquires or renews the lease, and writes into it whether the process is still connecting. It returns false if
// another process holds the lease, or the API server does not answer.
func (k *virtualKubelet) renew(connects bool) bool {
	ctx, cancel := context.WithTimeout(k.process.ctx, 5*time.Second)
	defer cancel()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: k.provider.tenant(), Name: k.virtualNode()}}
	return k.process.request(ctx, k.world.weather, "renew", true, func() error {
		now := metav1.NewMicroTime(time.Now())
		lease.Annotations = map[string]string{}
		if connects {
			lease.Annotations[v1alpha1.ConnectingAnnotation] = k.process.name
		}
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: &k.process.name, RenewTime: &now, LeaseDurationSeconds: ptr.To(int32(leaseSeconds)),
		}
		found, err := k.world.home.find(typeOf[coordinationv1.Lease](), keyOf(lease))
		if err != nil {
			return k.world.home.create(k.process.name, lease)
		}
		fresh := *found.(*coordinationv1.Lease)
		if *fresh.Spec.HolderIdentity != k.process.name && time.Since(fresh.Spec.RenewTime.Time) < leaseSeconds*time.Second {
			return errors.New("another process holds it")
		}
		fresh.Spec, fresh.Annotations = lease.Spec, lease.Annotations
		_, err = k.world.home.replace(k.process.name, &fresh, false)
		return err
	}) == nil
}

// serve starts to forward pods.
func (k *virtualKubelet) serve() {
	by := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { k.add(o.(object).GetName()) },
		UpdateFunc: func(_, o any) { k.add(o.(object).GetName()) },
		DeleteFunc: func(o any) { k.add(o.(object).GetName()) },
	}
	remotePods, shadows := k.remote.informer(typeOf[corev1.Pod]()), k.remote.informer(typeOf[offloadingv1beta1.ShadowPod]())
	pods := k.local.informer(typeOf[corev1.Pod]())
	k.world.spawn(func() {
		for _, i := range []*informer{remotePods, shadows, pods} {
			if i.waitSynced(k.process.ctx) != nil {
				return
			}
		}
		for _, i := range []*informer{remotePods, shadows, pods} {
			_, _ = i.AddEventHandler(by)
		}
	})
}

// add queues a pod. One worker at a time handles it.
func (k *virtualKubelet) add(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, busy := k.busy[name]; busy {
		k.busy[name] = true
		return
	}
	k.busy[name] = true
	k.world.spawn(func() { k.work(name) })
}

func (k *virtualKubelet) work(name string) {
	for {
		k.mu.Lock()
		if !k.busy[name] {
			delete(k.busy, name)
			k.mu.Unlock()
			return
		}
		k.busy[name] = false
		k.mu.Unlock()
		if k.process.gate() != nil {
			return
		}
		err := k.handle(name)
		k.mu.Lock()
		if err == nil {
			delete(k.failures, name)
			k.mu.Unlock()
			continue
		}
		k.failures[name]++
		wait := min(5*time.Second, 50*time.Millisecond<<min(k.failures[name], 10))
		k.busy[name] = true
		k.mu.Unlock()
		if !k.process.sleep(k.process.ctx, wait) {
			return
		}
	}
}

// handle takes the next step for a pod.
func (k *virtualKubelet) handle(name string) error {
	remoteKey := types.NamespacedName{Namespace: k.provider.namespace(), Name: name}
	shadowFound := k.remote.informer(typeOf[offloadingv1beta1.ShadowPod]()).get(remoteKey)
	remoteFound := k.remote.informer(typeOf[corev1.Pod]()).get(remoteKey)
	shadow, _ := shadowFound.(*offloadingv1beta1.ShadowPod)
	remote, _ := remoteFound.(*corev1.Pod)
	local := k.assignedPod(name)
	if k.process.gate() != nil { // The process may have been paused.
		return errKilled
	}
	ctx, cancel := context.WithTimeout(k.process.ctx, kubeletRequest)
	defer cancel()
	others := shadow != nil && !k.slice.forwarded(shadow) || remote != nil && !k.slice.forwarded(remote)
	switch {
	case local == nil && others:
		return k.release(ctx, name)
	case local == nil:
		if err := k.reportEnd(ctx, shadow); err != nil {
			return err
		}
		if k.assignedPod(name) != nil {
			return errors.New("the pod came back meanwhile")
		}
		k.observeRemoval(name, shadow)
		if err := k.deleteShadow(ctx, shadow); err != nil {
			return err
		}
		return k.release(ctx, name)
	case others && local.DeletionTimestamp == nil:
		return errors.New("another slice has a pod of the name")
	case others:
		shadow, remote = nil, nil
	}
	k.observe(local)
	switch {
	case local.DeletionTimestamp != nil:
		if err := k.deleteShadow(ctx, shadow); err != nil || shadow != nil || remote != nil {
			return err
		}
		if err := k.reportRemoval(ctx, local); err != nil {
			return err
		}
		return k.process.request(ctx, k.world.weather, "finalize "+name, true, func() error {
			err := k.world.home.remove(k.process.name, local, ptr.To(int64(0)), &metav1.Preconditions{UID: &local.UID})
			return ignoreGone(err)
		})
	case ended(local):
		return nil
	case shadow != nil && (shadow.Annotations[localUID] != string(local.UID) || k.removes(name, shadow)):
		if err := k.deleteShadow(ctx, shadow); err != nil {
			return err
		}
		return errors.New("an earlier pod of the name is not gone yet")
	case shadow == nil && remote != nil || shadow != nil && shadow.DeletionTimestamp != nil,
		remote != nil && ownedBy(remote) != shadow.UID:
		return errors.New("what it had there before is not gone yet")
	case shadow == nil:
		return k.create(ctx, local)
	case remote == nil && (shadow.Status.Phase == corev1.PodFailed || shadow.Status.Phase == corev1.PodSucceeded):
		return k.reportLoss(ctx, local, shadow.Status.Phase)
	case remote != nil && remote.Annotations[localUID] == string(local.UID):
		return k.report(ctx, local, remote)
	}
	return nil
}

// assignedPod returns a pod as the cache shows it; nil if it is not assigned to the slice.
func (k *virtualKubelet) assignedPod(name string) *corev1.Pod {
	found := k.local.informer(typeOf[corev1.Pod]()).get(types.NamespacedName{Namespace: podNamespace, Name: name})
	pod, _ := found.(*corev1.Pod)
	if pod == nil || pod.Labels[v1alpha1.VirtualNodeLabel] != k.virtualNode() || pod.Labels[v1alpha1.ProviderLabel] != k.provider.id {
		return nil
	}
	return pod
}

func (k *virtualKubelet) observeRemoval(name string, shadow *offloadingv1beta1.ShadowPod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.removed, name)
	if shadow != nil {
		k.removed[name] = shadow.UID
	}
}

func (k *virtualKubelet) removes(name string, shadow *offloadingv1beta1.ShadowPod) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if uid, removed := k.removed[name]; removed && (shadow == nil || shadow.UID != uid) {
		delete(k.removed, name)
	}
	_, removed := k.removed[name]
	return removed
}

func ignoreGone(err error) error {
	if kerrors.IsNotFound(err) || kerrors.IsConflict(err) {
		return nil
	}
	return err
}

func (k *virtualKubelet) deleteShadow(ctx context.Context, shadow *offloadingv1beta1.ShadowPod) error {
	if shadow == nil || shadow.DeletionTimestamp != nil {
		return nil
	}
	return k.process.request(ctx, k.provider.weather, "delete "+shadow.Name, true, func() error {
		return ignoreGone(k.provider.server.remove(k.process.name, shadow, nil, &metav1.Preconditions{UID: &shadow.UID}))
	})
}

// reportEnd writes the status of a pod that ended while it was leaving, as the provider's API server shows it.
func (k *virtualKubelet) reportEnd(ctx context.Context, shadow *offloadingv1beta1.ShadowPod) error {
	if shadow == nil || shadow.DeletionTimestamp != nil {
		return nil
	}
	var remote *corev1.Pod
	err := k.process.request(ctx, k.provider.weather, "get "+shadow.Name, false, func() error {
		found, err := k.provider.server.find(typeOf[corev1.Pod](), keyOf(shadow))
		if err == nil {
			remote = found.(*corev1.Pod)
		}
		return ignoreGone(err)
	})
	if err != nil {
		return err
	}
	if remote == nil || remote.DeletionTimestamp != nil || !ended(remote) {
		return nil
	}
	return k.process.request(ctx, k.world.weather, "end "+shadow.Name, true, func() error {
		local := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace, Name: shadow.Name}}
		_, err := k.world.home.update(k.process.name, local, true, func(fresh object) error {
			pod := fresh.(*corev1.Pod)
			if string(pod.UID) != shadow.Annotations[localUID] || pod.DeletionTimestamp != nil || ended(pod) ||
				pod.Labels[v1alpha1.VirtualNodeLabel] != "" || pod.Annotations[v1alpha1.MovingFromAnnotation] != k.virtualNode() ||
				pod.Annotations[v1alpha1.MovingFromProviderAnnotation] != k.provider.id {
				return errNotLeaving
			}
			pod.Status = *remote.Status.DeepCopy()
			return nil
		})
		if errors.Is(err, errNotLeaving) {
			return nil
		}
		return ignoreGone(err)
	})
}

var errNotLeaving = errors.New("the pod is not leaving")

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (k *virtualKubelet) create(ctx context.Context, local *corev1.Pod) error {
	shadow := &offloadingv1beta1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: k.provider.namespace(), Name: local.Name, Labels: labelsOf(k.virtualNode()),
			Annotations: map[string]string{localUID: string(local.UID)},
		},
		Spec: offloadingv1beta1.ShadowPodSpec{Pod: *local.Spec.DeepCopy()},
	}
	if seconds, completes := local.Annotations[durationAnnotation]; completes {
		shadow.Annotations[durationAnnotation] = seconds
	}
	if err := k.stillAssigned(ctx, local); err != nil {
		return err
	}
	err := k.process.request(ctx, k.provider.weather, "create "+local.Name, true, func() error { return k.createThere(ctx, shadow) })
	k.mu.Lock()
	switch {
	case err == nil, kerrors.IsAlreadyExists(err):
		delete(k.uncertain, local.Name)
	case kerrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		k.uncertain[local.Name] = time.Now()
	}
	k.mu.Unlock()
	if err == nil {
		err = k.makeClaims(ctx, local)
	}
	if kerrors.IsForbidden(err) {
		reason := "Forbidden"
		if err.Error() != "" && containsQuota(err) {
			reason = "QuotaExceeded"
		}
		return errors.Join(err, k.refuse(ctx, local, reason, err.Error()))
	}
	return err
}

// stillAssigned reads the pod from the API server, since the cache may lag.
func (k *virtualKubelet) stillAssigned(ctx context.Context, local *corev1.Pod) error {
	return k.process.request(ctx, k.world.weather, "get "+local.Name, false, func() error {
		found, err := k.world.home.find(typeOf[corev1.Pod](), keyOf(local))
		if err != nil {
			return err
		}
		if found.GetUID() != local.UID || found.GetLabels()[v1alpha1.VirtualNodeLabel] != k.virtualNode() ||
			found.GetAnnotations()[v1alpha1.AssignedAtAnnotation] != local.Annotations[v1alpha1.AssignedAtAnnotation] {
			return errors.New("it has been assigned elsewhere, or deleted")
		}
		return nil
	})
}

// createThere runs the request at the provider's API server. If that does not notice that the client is gone, the
// request continues until its timeout.
func (k *virtualKubelet) createThere(ctx context.Context, shadow *offloadingv1beta1.ShadowPod) error {
	deadline, _ := ctx.Deadline()
	there, cancel := context.WithDeadline(k.world.ctx, deadline)
	answer := make(chan error, 1)
	k.world.spawn(func() {
		defer cancel()
		answer <- k.slice.create(there, shadow)
	})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		if k.provider.weather.draw("notices "+shadow.Name)%2 == 0 {
			cancel()
		}
		return ctx.Err()
	}
}

// makeClaims notes on the volumes of a pod that their claims are at the provider.
func (k *virtualKubelet) makeClaims(ctx context.Context, local *corev1.Pod) error {
	for i := range local.Spec.Volumes {
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" +
			local.Spec.Volumes[i].PersistentVolumeClaim.ClaimName}}
		err := k.process.request(ctx, k.world.weather, "make "+volume.Name, true, func() error {
			_, err := k.world.home.update(k.process.name, volume, false, func(fresh object) error {
				if fresh.GetLabels()[v1alpha1.ProviderLabel] == k.provider.id {
					fresh.SetAnnotations(map[string]string{v1alpha1.MadeAtAnnotation: k.provider.id})
				}
				return nil
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// refuse writes the condition that shows the broker that the provider rejected a pod.
func (k *virtualKubelet) refuse(ctx context.Context, local *corev1.Pod, reason, message string) error {
	return k.patchStatus(ctx, local, func(pod *corev1.Pod) error {
		pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return strings.HasPrefix(string(c.Type), v1alpha1.ConditionRefusedPrefix)
		})
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodConditionType(v1alpha1.ConditionRefusedPrefix + k.virtualNode()), Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)), Reason: reason, Message: message,
		})
		return nil
	})
}

func (k *virtualKubelet) patchStatus(ctx context.Context, local *corev1.Pod, change func(*corev1.Pod) error) error {
	return k.process.request(ctx, k.world.weather, "status "+local.Name, true, func() error {
		_, err := k.world.home.update(k.process.name, local, true, func(fresh object) error {
			if fresh.GetUID() != local.UID {
				return errors.New("it is another pod")
			}
			return change(fresh.(*corev1.Pod))
		})
		return err
	})
}

// report writes the status of the remote pod if the local pod shows another one.
func (k *virtualKubelet) report(ctx context.Context, local, remote *corev1.Pod) error {
	_, unreachable := local.Annotations[v1alpha1.UnreachableAnnotation]
	ready := isReady(remote) && !unreachable
	shown := reported(local, remote, ready)
	if local.Status.Phase == shown.Phase && local.Status.PodIP == shown.PodIP && sameConditions(local.Status.Conditions, shown.Conditions) {
		return nil
	}
	return k.patchStatus(ctx, local, func(pod *corev1.Pod) error {
		if pod.ResourceVersion != local.ResourceVersion {
			return kerrors.NewConflict(resourceOf(typeOf[corev1.Pod]()), pod.Name, errors.New("it has changed"))
		}
		pod.Status = *shown
		return nil
	})
}

// reported returns the status to show for a remote pod: everything that kubelets wrote, plus the conditions that the
// broker and kube-scheduler wrote in this cluster. A pod that ended because it was deleted at the provider gets
// DisruptionTarget, even if its provider did not set it.
func reported(local, remote *corev1.Pod, ready bool) *corev1.PodStatus {
	shown := remote.Status.DeepCopy()
	for i := range shown.Conditions {
		if c := &shown.Conditions[i]; c.Type == corev1.PodReady && !ready {
			c.Status = corev1.ConditionFalse
		}
	}
	if remote.DeletionTimestamp != nil && ended(remote) {
		shown.Conditions = disrupted(shown.Conditions)
	}
	shown.Conditions = slices.DeleteFunc(shown.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	for i := range local.Status.Conditions {
		if c := &local.Status.Conditions[i]; c.Type == corev1.PodScheduled || strings.HasPrefix(string(c.Type), ownConditions) {
			shown.Conditions = append(shown.Conditions, *c)
		}
	}
	return shown
}

// disrupted returns conditions that include DisruptionTarget.
func disrupted(conditions []corev1.PodCondition) []corev1.PodCondition {
	if slices.ContainsFunc(conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }) {
		return conditions
	}
	return append(conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletedInRemoteCluster",
		LastTransitionTime: metav1.NewTime(time.Now()),
	})
}

func sameConditions(a, b []corev1.PodCondition) bool {
	has := func(all []corev1.PodCondition, one corev1.PodCondition) bool {
		return slices.ContainsFunc(all, func(c corev1.PodCondition) bool { return c.Type == one.Type && c.Status == one.Status })
	}
	return len(a) == len(b) && !slices.ContainsFunc(a, func(c corev1.PodCondition) bool { return !has(b, c) })
}

// reportLoss reports that a pod was deleted at the provider and no longer exists there, as Liqo does (HandleStatus in
// its pkg/virtualKubelet/reflection/workload/podns.go).
func (k *virtualKubelet) reportLoss(ctx context.Context, local *corev1.Pod, phase corev1.PodPhase) error {
	return k.patchStatus(ctx, local, func(pod *corev1.Pod) error {
		if pod.ResourceVersion != local.ResourceVersion {
			return kerrors.NewConflict(resourceOf(typeOf[corev1.Pod]()), pod.Name, errors.New("it has changed"))
		}
		end(pod, phase, "RemotePodTerminated", 137)
		pod.Status.Reason, pod.Status.Conditions = "RemotePodTerminated", disrupted(pod.Status.Conditions)
		return nil
	})
}

// reportRemoval writes the terminal phase of a pod right before it is removed, as a kubelet does.
func (k *virtualKubelet) reportRemoval(ctx context.Context, local *corev1.Pod) error {
	if ended(local) {
		return nil
	}
	return ignoreGone(k.patchStatus(ctx, local, func(pod *corev1.Pod) error {
		if !ended(pod) {
			pod.Status = *podstatus.Unknown(&pod.Status)
		}
		return nil
	}))
}

func isReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			return pod.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}

func (k *virtualKubelet) observe(local *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.assigned[local.Name] = kubeletAssignment{
		uid: local.UID, id: k.virtualNode() + "/" + local.Annotations[v1alpha1.AssignedAtAnnotation],
		deleted: local.DeletionTimestamp != nil,
	}
}

// release reports that a pod was released, unless a creation may still be in flight.
func (k *virtualKubelet) release(ctx context.Context, name string) error {
	k.mu.Lock()
	left, assigned := k.assigned[name]
	since, uncertain := k.uncertain[name]
	delete(k.assigned, name)
	delete(k.uncertain, name)
	k.mu.Unlock()
	if !assigned || left.deleted || uncertain && time.Since(since) < 25*time.Second {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": left.uid, "annotations": map[string]string{v1alpha1.ReleasedAnnotation: left.id},
	}})
	if err != nil {
		return err
	}
	err = k.process.request(ctx, k.world.weather, "release "+name, true, func() error {
		_, err := k.world.home.patch(k.process.name, podOf(types.NamespacedName{Namespace: podNamespace, Name: name}),
			types.MergePatchType, body, false)
		return ignoreGone(err)
	})
	if err != nil {
		k.mu.Lock()
		if _, again := k.assigned[name]; !again {
			k.assigned[name] = left
		}
		k.mu.Unlock()
	}
	return err
}
