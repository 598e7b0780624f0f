package histories

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

type object = client.Object

// localUID is an annotation of ShadowPods and their pods: the UID of the pod in the broker's cluster.
const localUID = v1alpha1.PodUIDAnnotation

// provider is a provider cluster: its API server, Liqo's webhook and controller of ShadowPods, and its nodes.
type provider struct {
	world  *world
	id     string
	slices []*slice
	// namesakes are slices with the name of another provider's slice. Their VirtualNodes exist for a while.
	namesakes []*slice
	server    *server
	weather   *weather

	// The following fields are guarded by the weather's mu. slow delays the start of containers. frozen makes the
	// webhook hang. closed rejects ShadowPods because the namespace is terminating. full rejects them because other
	// clients use the granted quota.
	slow   time.Duration
	frozen int
	closed bool
	full   int
	// strict makes a LimitRange reject the pods of accepted ShadowPods. stalled makes the controller of ShadowPods do
	// nothing. holds adds a finalizer to each new pod.
	strict, stalled, holds int
	// slowAdmission makes webhooks for pods slow now and then.
	slowAdmission bool
	shadowPods    shadowPods
}

// slice is a ResourceSlice that a provider grants, with its VirtualNode and an identity of its own.
type slice struct {
	provider    *provider
	virtualNode string
	cpus        int
}

func newProvider(w *world, id string, cpus []int, seed uint64) *provider {
	p := &provider{world: w, id: id, server: newServer(id), weather: newWeather(seed), closed: true}
	for i, granted := range cpus {
		p.slices = append(p.slices, &slice{provider: p, virtualNode: fmt.Sprintf("%s-%c", id, 'a'+i), cpus: granted})
	}
	return p
}

// namesake returns the slice that has the same name as a slice of another provider. The first call creates it, before
// the history starts.
func (p *provider) namesake(of *slice) *slice {
	i := slices.IndexFunc(p.namesakes, func(s *slice) bool { return s.virtualNode == of.virtualNode })
	if i < 0 {
		i = len(p.namesakes)
		p.namesakes = append(p.namesakes, &slice{provider: p, virtualNode: of.virtualNode, cpus: of.cpus})
	}
	return p.namesakes[i]
}

func (p *provider) tenant() string { return "liqo-tenant-" + p.id }

// kubeconfig is the Secret that Liqo makes for a ResourceSlice.
func (s *slice) kubeconfig() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.provider.tenant(), Name: "kubeconfig-resourceslice-" + s.virtualNode}}
}

// resourceSlice is the ResourceSlice by which the broker's cluster requests the slice.
func (s *slice) resourceSlice() *authv1beta1.ResourceSlice {
	return &authv1beta1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.provider.tenant(), Name: s.virtualNode},
		Spec: authv1beta1.ResourceSliceSpec{
			ConsumerClusterID: ptr.To(liqov1beta1.ClusterID(brokerID)), ProviderClusterID: ptr.To(liqov1beta1.ClusterID(s.provider.id)),
		},
	}
}

// forwarded reports whether the virtual kubelet of this slice, and not of another one, forwarded a ShadowPod or its
// pod.
func (s *slice) forwarded(o object) bool {
	return o.GetLabels()[forge.LiqoOriginClusterNodeName] == s.virtualNode
}

func (p *provider) namespace() string { return podNamespace + "-" + p.id }

// create handles a virtual kubelet's request to create a ShadowPod. Liqo's webhook may delay it. The webhook counts all
// ShadowPods of the same identity, whatever their phase (peeringInfo in Liqo's pkg/webhooks/shadowpod).
func (s *slice) create(ctx context.Context, shadow *offloadingv1beta1.ShadowPod) error {
	p := s.provider
	for {
		p.weather.mu.Lock()
		frozen, closed, full, changed := p.frozen > 0, p.closed, p.full > 0, p.weather.changed
		p.weather.mu.Unlock()
		if !frozen {
			if closed {
				return kerrors.NewForbidden(resourceOf(typeOf[offloadingv1beta1.ShadowPod]()), shadow.Name,
					errors.New("the namespace is being terminated"))
			}
			if full {
				return kerrors.NewForbidden(resourceOf(typeOf[offloadingv1beta1.ShadowPod]()), shadow.Name,
					errors.New("quota usage exceeded: cpu"))
			}
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err() // The API server cancels a request whose client is gone.
		}
	}
	_, err := p.server.find(typeOf[offloadingv1beta1.ShadowPod](), keyOf(shadow))
	if err == nil {
		return kerrors.NewAlreadyExists(resourceOf(typeOf[offloadingv1beta1.ShadowPod]()), shadow.Name)
	}
	taken := cpusOf(&shadow.Spec.Pod)
	for _, o := range p.server.all(typeOf[offloadingv1beta1.ShadowPod]()) {
		if s.forwarded(o) {
			taken += cpusOf(&o.(*offloadingv1beta1.ShadowPod).Spec.Pod)
		}
	}
	if taken > s.cpus {
		return kerrors.NewForbidden(resourceOf(typeOf[offloadingv1beta1.ShadowPod]()), shadow.Name,
			fmt.Errorf("quota usage exceeded: cpu %d of %d", taken, s.cpus))
	}
	return p.server.create("kubelet", shadow)
}

func cpusOf(spec *corev1.PodSpec) (cpus int) {
	for i := range spec.Containers {
		cpus += int(spec.Containers[i].Resources.Requests.Cpu().Value())
	}
	return cpus
}

// run makes the controllers and the kubelets of the provider handle changes.
func (p *provider) run() {
	shadows, pods := typeOf[offloadingv1beta1.ShadowPod](), typeOf[corev1.Pod]()
	seenShadows, seenPods := 0, 0
	for {
		changes, moreShadows := p.server.since(shadows, seenShadows)
		seenShadows += len(changes)
		for i := range changes {
			p.shadowPods.add(p, keyOf(changes[i].Object()))
			if changes[i].After == nil {
				p.collect(changes[i].Before)
			}
		}
		changes, morePods := p.server.since(pods, seenPods)
		seenPods += len(changes)
		for i := range changes {
			if changes[i].Before != nil { // Liqo's controller does not watch creations of pods (SetupWithManager).
				p.shadowPods.add(p, keyOf(changes[i].Object()))
			} else {
				p.verifyOwner(changes[i].After.(*corev1.Pod))
			}
			p.observe(&changes[i])
		}
		select {
		case <-moreShadows:
		case <-morePods:
		case <-p.world.ctx.Done():
			return
		}
	}
}

// soon calls do after a random delay between least and most milliseconds.
func (p *provider) soon(what string, least, most uint64, do func()) {
	p.world.after(p.between(what, least, most), do)
}

func (p *provider) between(what string, least, most uint64) time.Duration {
	return time.Duration(1_000_000*least + p.weather.draw(what)%(1_000_000*(most-least)))
}

func podOf(key types.NamespacedName) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
}

func (p *provider) openNamespace() {
	p.weather.change(func(*weather) { p.closed = false })
}

// closeNamespace removes the namespace with all its objects once the provider can be reached. It returns false if the
// world ended.
func (p *provider) closeNamespace(ctx context.Context) bool {
	liqo := newProcess(ctx, "liqo")
	for p.weather.accepted(ctx, liqo, false) != nil {
		if !liqo.sleep(ctx, time.Second) {
			return false
		}
	}
	p.weather.change(func(*weather) { p.closed = true })
	for {
		for _, o := range p.server.all(typeOf[offloadingv1beta1.ShadowPod]()) {
			_ = p.server.remove("namespace-controller", o, nil, nil)
		}
		pods := p.server.all(typeOf[corev1.Pod]())
		for _, o := range pods {
			_ = p.server.remove("namespace-controller", o, ptr.To(int64(2)), nil)
		}
		if len(pods) == 0 {
			return true
		}
		if !liqo.sleep(ctx, 300*time.Millisecond) {
			return false
		}
	}
}

// labelsOf returns the labels of a ShadowPod that a virtual kubelet creates.
func labelsOf(virtualNode string) map[string]string {
	return map[string]string{forge.LiqoOriginClusterIDKey: brokerID, forge.LiqoOriginClusterNodeName: virtualNode}
}
