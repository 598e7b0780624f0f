package histories

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
)

const (
	podNamespace = "ns"
	// brokerID is the id of the broker's cluster.
	brokerID = "broker"
	// durationAnnotation is an annotation with the number of seconds after which the container of a pod completes.
	durationAnnotation = "histories/seconds"
	// ownConditions is the prefix of the condition types that the broker and its virtual kubelets write.
	ownConditions = "brokering.liqo.io/"
)

// world is a broker's cluster with its providers.
type world struct {
	ctx    context.Context
	scheme *runtime.Scheme
	// home is the broker's cluster, weather the state of the network to it.
	home      *server
	weather   *weather
	providers []*provider
	// scheduled makes kube-scheduler bind the pods of consumers. Otherwise they are bound when they are created.
	scheduled bool
	running   sync.WaitGroup

	mu sync.Mutex
	// brokers are the running replicas, kubelets the virtual kubelets by slice. Guarded by mu.
	brokers  []*process
	kubelets map[*slice]*virtualKubelet
	// panicked is the panic of a reconciler; "" if none has panicked. Guarded by mu.
	panicked string
	// administrator is held while a VirtualNode is created or deleted.
	administrator sync.Mutex
	// joins is when each VirtualNode was created. Guarded by mu.
	joins   map[*slice][]time.Time
	started int
	// interrupter is notified of the brokers' writes; may be nil.
	interrupter *interrupter
}

func newWorld(ctx context.Context, scheme *runtime.Scheme, h *history) *world {
	w := &world{
		ctx: ctx, scheme: scheme, home: newServer("home"), weather: newWeather(h.Seed), scheduled: h.Scheduled,
		interrupter: h.interrupter, kubelets: map[*slice]*virtualKubelet{}, joins: map[*slice][]time.Time{},
	}
	if h.Scheduled {
		w.spawn(w.runKubeScheduler)
	}
	w.spawn(w.runJobs)
	if !h.LateNamespace {
		w.createNamespace()
	}
	for i, cpus := range h.Providers {
		p := newProvider(w, fmt.Sprintf("p%d", i), cpus, h.Seed+uint64(i+1))
		p.slowAdmission = h.SlowAdmission
		w.providers = append(w.providers, p)
		w.mustCreate(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.tenant(), Labels: map[string]string{
			consts.RemoteClusterID: p.id, consts.TenantNamespaceLabel: "true",
		}}})
		w.mustCreate(&liqov1beta1.ForeignCluster{
			ObjectMeta: metav1.ObjectMeta{Name: p.id}, Spec: liqov1beta1.ForeignClusterSpec{ClusterID: liqov1beta1.ClusterID(p.id)},
		})
		for _, s := range p.slices {
			w.join(s)
		}
		w.spawn(p.run)
	}
	for _, f := range h.Faults {
		if f.Kind == namesake {
			w.namesake(w.providers[f.Provider], f)
		}
	}
	return w
}

// spawn runs do in a goroutine. The world waits for it at its end.
func (w *world) spawn(do func()) {
	w.running.Add(1)
	go func() {
		defer w.running.Done()
		do()
	}()
}

// after runs do after a delay, unless the world has ended.
func (w *world) after(d time.Duration, do func()) {
	w.spawn(func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			do()
		case <-w.ctx.Done():
		}
	})
}

// later runs do after a delay, once the API server of the broker's cluster answers.
func (w *world) later(d time.Duration, do func()) {
	w.after(d, func() {
		if w.waitHome() {
			do()
		}
	})
}

// waitHome blocks until the API server of the broker's cluster answers. It returns false if the world ended first.
func (w *world) waitHome() bool {
	client := newProcess(w.ctx, "client")
	for w.weather.accepted(w.ctx, client, false) != nil {
		if !client.sleep(w.ctx, 500*time.Millisecond) {
			return false
		}
	}
	return true
}

func (w *world) mustCreate(o object) {
	if err := w.home.create("liqo", o); err != nil {
		panic(err)
	}
}

func (w *world) provider(id string) *provider {
	for _, p := range w.providers {
		if p.id == id {
			return p
		}
	}
	panic("no provider " + id)
}

// startBroker starts a replica, and restarts it when it ends.
func (w *world) startBroker() {
	w.mu.Lock()
	w.started++
	p := newProcess(w.ctx, fmt.Sprintf("broker-%d", w.started))
	p.interrupter = w.interrupter
	w.brokers = append(w.brokers, p)
	w.mu.Unlock()
	w.spawn(func() {
		err := w.runBroker(p)
		p.kill(err)
		w.mu.Lock()
		for i, other := range w.brokers {
			if other == p {
				w.brokers = append(w.brokers[:i:i], w.brokers[i+1:]...)
			}
		}
		w.mu.Unlock()
		w.after(2*time.Second, w.startBroker)
	})
}

// leader returns the replica that leads; nil if there is none.
func (w *world) leader() *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.brokers {
		if p.leads.Load() {
			return p
		}
	}
	return nil
}

// findVirtualNode returns the VirtualNode of a slice; nil if there is none.
func (w *world) findVirtualNode(s *slice) object {
	found, err := w.home.find(typeOf[offloadingv1beta1.VirtualNode](),
		types.NamespacedName{Namespace: s.provider.tenant(), Name: s.virtualNode})
	if err != nil {
		return nil
	}
	return found
}

// join creates the objects that Liqo creates for a granted ResourceSlice: the VirtualNode and, unless another slice of
// the provider already has it, the NamespaceMap with the offloaded namespace. It returns false if the previous ones
// still exist.
func (w *world) join(s *slice) bool {
	p := s.provider
	w.administrator.Lock()
	defer w.administrator.Unlock()
	if w.findVirtualNode(s) != nil {
		return false
	}
	m := &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.tenant(), Name: p.id, Labels: map[string]string{consts.RemoteClusterID: p.id}, Finalizers: []string{"liqo"},
		},
		Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{podNamespace: p.namespace()}},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			podNamespace: {RemoteNamespace: p.namespace(), Phase: offloadingv1beta1.MappingAccepted},
		}},
	}
	switch found, err := w.home.find(typeOf[offloadingv1beta1.NamespaceMap](), keyOf(m)); {
	case err == nil && found.GetDeletionTimestamp() != nil:
		return false
	case err != nil:
		if w.home.create("liqo", m) != nil {
			return false
		}
		p.openNamespace()
	}
	_ = w.home.create("liqo", s.resourceSlice())
	_ = w.home.create("liqo", s.kubeconfig())
	vn := &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.tenant(), Name: s.virtualNode, Finalizers: []string{"liqo"}},
		Spec: offloadingv1beta1.VirtualNodeSpec{
			StorageClasses: []liqov1beta1.StorageType{{StorageClassName: "disk", Default: true}},
			ClusterID:      liqov1beta1.ClusterID(p.id), KubeconfigSecretRef: &corev1.LocalObjectReference{Name: s.kubeconfig().Name},
			ResourceQuota: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
				corev1.ResourceCPU:  *resource.NewQuantity(int64(s.cpus), resource.DecimalSI),
				corev1.ResourcePods: resource.MustParse("100"),
			}},
		},
	}
	w.mustCreate(vn)
	w.startKubelet(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.joins[s] = append(w.joins[s], time.Now())
	return true
}

// joinedAgain returns when a VirtualNode that was deleted at a time was created again: the first creation at or after
// until, or until if there is none.
func (w *world) joinedAgain(s *slice, from, until time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, joined := range w.joins[s] {
		if joined.After(from) && !joined.Before(until) {
			return joined
		}
	}
	return until
}

// part deletes the VirtualNode of a slice as Liqo does (virtualnode-controller, namespacemap-controller): the virtual
// kubelet ends, the removal of the namespace is requested if that was the last VirtualNode of the provider, and the
// VirtualNode is removed. The namespace at the provider is removed later, sometimes much later, and only then the
// NamespaceMap. If the administrator deleted the ResourceSlice, and not only the VirtualNode, the kubeconfig is deleted
// as well.
func (w *world) part(s *slice) {
	p := s.provider
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: p.tenant(), Name: s.virtualNode}}
	m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.tenant(), Name: p.id}}
	w.administrator.Lock()
	defer w.administrator.Unlock()
	found := w.findVirtualNode(s)
	if found == nil || found.GetDeletionTimestamp() != nil || w.home.remove("admin", vn, nil, nil) != nil {
		return // The VirtualNode is gone or already being deleted.
	}
	chance := p.weather.draw("part")
	w.later(time.Duration(chance%500)*time.Millisecond, func() {
		w.mu.Lock()
		kubelet := w.kubelets[s]
		delete(w.kubelets, s)
		w.mu.Unlock()
		if kubelet != nil {
			kubelet.process.kill(errKilled)
		}
		w.administrator.Lock()
		defer w.administrator.Unlock()
		for _, other := range w.home.all(typeOf[offloadingv1beta1.VirtualNode]()) {
			if other.GetNamespace() == p.tenant() && other.GetName() != s.virtualNode {
				return // ensureNamespaceMapAbsence also counts VirtualNodes that are being deleted.
			}
		}
		_ = w.home.remove("liqo", m, nil, nil)
		_, _ = w.home.update("liqo", copyOf(m), true, func(fresh object) error {
			of := fresh.(*offloadingv1beta1.NamespaceMap)
			for name, at := range of.Status.CurrentMapping {
				at.Phase = offloadingv1beta1.MappingTerminating
				of.Status.CurrentMapping[name] = at
			}
			return nil
		})
		closing := time.Duration(500+chance>>32%3000) * time.Millisecond
		if chance>>50%4 == 0 {
			closing += 40 * time.Second // The controllers of the provider are slow.
		}
		w.after(closing, func() {
			if !p.closeNamespace(w.ctx) {
				return
			}
			w.later(0, func() { w.unfinalize(m) })
		})
	})
	w.later(time.Duration(600+chance>>16%1400)*time.Millisecond, func() { w.unfinalize(vn) })
	if chance>>48%2 == 0 {
		_ = w.home.remove("admin", s.resourceSlice(), nil, nil)
		_ = w.home.remove("liqo", s.kubeconfig(), nil, nil)
	}
}

func (w *world) unfinalize(o object) {
	_, _ = w.home.update("liqo", o, false, func(fresh object) error { fresh.SetFinalizers(nil); return nil })
}

// setSpec changes the ProviderCluster of a provider. It creates the object if the broker has not done so.
func (w *world) setSpec(p *provider, change func(*v1alpha1.ProviderClusterSpec)) {
	pc := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: p.id}}
	_ = w.home.create("admin", copyOf(pc))
	_, _ = w.home.update("admin", pc, false, func(fresh object) error {
		change(&fresh.(*v1alpha1.ProviderCluster).Spec)
		return nil
	})
}

// cordonNode cordons or uncordons the broker's Node like kubectl. It retries until the Node exists.
func (w *world) cordonNode(cordoned bool) {
	administrator := newProcess(w.ctx, "admin")
	for {
		_, err := w.home.update("admin", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: brokerNode}}, false, func(fresh object) error {
			fresh.(*corev1.Node).Spec.Unschedulable = cordoned
			return nil
		})
		if err == nil || !administrator.sleep(w.ctx, time.Second) {
			return
		}
	}
}

// createNamespace creates the namespace of the consumer's pods if it does not exist.
func (w *world) createNamespace() {
	_ = w.home.create("liqo", &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: podNamespace, Labels: map[string]string{consts.RemoteClusterID: "consumer"},
			Annotations: map[string]string{consts.RemoteNamespaceManagedByAnnotationKey: "liqo-tenant/consumer"},
		},
	})
}

// sharedClaim is the name of the PersistentVolumeClaim that several pods use.
const sharedClaim = "data"

// createVolume creates a claim of Liqo's class that is bound to its volume, which is at no provider yet.
func (w *world) createVolume(name string) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace, Name: name},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("liqo"), VolumeName: "pvc-" + name},
	}
	if w.home.create("consumer", claim) != nil {
		return // An earlier pod of the name used it.
	}
	found, err := w.home.find(typeOf[corev1.PersistentVolumeClaim](), keyOf(claim))
	if err != nil {
		panic(err)
	}
	w.mustCreate(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + name, Labels: map[string]string{v1alpha1.VolumeLabel: "true"}},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{
			Namespace: podNamespace, Name: name,
			UID: found.GetUID(),
		}},
	})
}

// createPod creates a pod as a consumer does.
func (w *world) createPod(of *podSpec) {
	w.createNamespace()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace, Name: of.Name, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{NodeName: brokerNode, Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: *resource.NewQuantity(int64(of.CPUs), resource.DecimalSI),
			}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if w.scheduled {
		pod.Spec.NodeName = ""
	}
	if of.App != "" {
		pod.Labels = map[string]string{"app": of.App}
	}
	if of.Alone {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, judge.AloneLabel, "true")
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey:   v1alpha1.ProviderLabel,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{judge.AloneLabel: "true"}},
			}},
		}}
	}
	if of.Claim {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, judge.ClaimLabel, sharedClaim)
		for _, name := range []string{sharedClaim, "of-" + of.Name} {
			w.createVolume(name)
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
	}
	if of.Never {
		pod.Annotations[v1alpha1.FailoverAnnotation] = string(v1alpha1.FailoverNever)
	}
	if of.Once {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	if of.Job {
		pod.Finalizers = []string{batchv1.JobTrackingFinalizer}
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Name: "job", UID: "job", Controller: ptr.To(true),
		}}
	}
	if of.Seconds > 0 {
		pod.Annotations[durationAnnotation] = fmt.Sprint(of.Seconds)
	}
	_ = w.home.create("liqo", pod)
}

// deletePod deletes a pod as a consumer does.
func (w *world) deletePod(of *podSpec) {
	key := types.NamespacedName{Namespace: podNamespace, Name: of.Name}
	grace := int64(30)
	if of.Force { // Like Kubernetes' garbage collector of pods, or Liqo's nodefailure-controller.
		grace = 0
	}
	_ = w.home.remove("consumer", podOf(key), &grace, nil)
	if !of.Again {
		return
	}
	again := *of
	again.Again = false
	w.spawn(func() {
		consumer := newProcess(w.ctx, "consumer")
		for consumer.sleep(w.ctx, 200*time.Millisecond) {
			if _, err := w.home.find(typeOf[corev1.Pod](), key); err != nil && w.waitHome() {
				w.createPod(&again)
				return
			}
		}
	})
}
