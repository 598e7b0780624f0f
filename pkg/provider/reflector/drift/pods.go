package drift

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/kubernetes/scheme"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	offloadingv1beta1listers "github.com/liqotech/liqo/pkg/client/listers/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podspec"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
)

const (
	// reasonNotForwarded is the reason of the event on a pod whose spec was changed after it was forwarded.
	reasonNotForwarded = "ChangeNotForwarded"
	// reasonLeftOut is the reason of the event on a pod with fields that are never forwarded.
	reasonLeftOut = "NotForwarded"
)

// shownChanges is the maximum number of changes of one pod that the event names.
const shownChanges = 5

// Pods returns a reflector of pods that records two events: one with the changes of a pod after it was forwarded, and
// one with the fields that are never forwarded. Liqo forwards the spec once (forge.RemotePodSpec), and the API server
// has accepted both: without the events users do not see that they have no effect.
func Pods(local func(namespace string) corev1listers.PodNamespaceLister, next generic.NamespacedReflectorFactoryFunc,
) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		return &pods{
			NamespacedReflector: next(opts), local: local(opts.LocalNamespace), reported: map[report]string{},
			forwarded: opts.RemoteLiqoFactory.Offloading().V1beta1().ShadowPods().Lister().ShadowPods(opts.RemoteNamespace),
			events:    opts.EventBroadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "virtual-kubelet"}),
		}
	}
}

type pods struct {
	manager.NamespacedReflector
	local     corev1listers.PodNamespaceLister
	forwarded offloadingv1beta1listers.ShadowPodNamespaceLister
	events    record.EventRecorder

	mu sync.Mutex
	// reported has the last message of each reason on a pod.
	reported map[report]string
}

// report identifies the events of one reason on a pod.
type report struct{ pod, reason string }

func (p *pods) Handle(ctx context.Context, name string) error {
	p.report(name)
	return p.NamespacedReflector.Handle(ctx, name)
}

func (p *pods) report(name string) {
	var changed, leftOut string
	pod, err := p.local.Get(name) // A cache only fails with NotFound.
	if err == nil {
		shadow, missing := p.forwarded.Get(name)
		if missing == nil && pod.DeletionTimestamp == nil && shadow.DeletionTimestamp == nil && isOf(shadow, pod) {
			changed = messageOf(notForwarded(&pod.Spec, &shadow.Spec.Pod))
			if fields := podspec.LeftOut(&pod.Spec, &shadow.Spec.Pod); len(fields) > 0 {
				leftOut = "The pod runs in the remote cluster without these fields of its spec: " + strings.Join(fields, ", ")
			}
		}
	}
	for reason, message := range map[string]string{reasonNotForwarded: changed, reasonLeftOut: leftOut} {
		if p.isNew(report{name, reason}, message) {
			p.events.Event(pod, corev1.EventTypeWarning, reason, message)
		}
	}
}

// isOf reports whether a ShadowPod was made from this pod and not from an earlier one of its name. A ShadowPod without
// a UID counts as this pod's.
func isOf(shadow *offloadingv1beta1.ShadowPod, pod *corev1.Pod) bool {
	uid := transform.PodUID(shadow)
	return uid == "" || uid == pod.UID
}

// isNew records a message, and reports whether it is new. An empty message clears the record.
func (p *pods) isNew(of report, message string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if message == "" {
		delete(p.reported, of)
		return false
	}
	is := p.reported[of] != message
	p.reported[of] = message
	return is
}

func messageOf(changes []string) string {
	if len(changes) == 0 {
		return ""
	}
	if more := len(changes) - shownChanges; more > 0 {
		changes = append(changes[:shownChanges:shownChanges], fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("The remote pod keeps its original spec; changes not forwarded: %s. "+
		"Delete the pod and create it again to apply them.", strings.Join(changes, ", "))
}

// notForwarded returns the fields of a pod's spec that differ from the forwarded spec. It compares the fields that an
// API server allows to change (ValidatePodUpdate, ValidatePodResize and ValidatePodEphemeralContainersUpdate in
// Kubernetes' pkg/apis/core/validation) and that Liqo forwards unchanged. Liqo filters tolerations.
func notForwarded(local, forwarded *corev1.PodSpec) []string {
	changes := slices.Concat(
		changedContainers("init container", local.InitContainers, forwarded.InitContainers),
		changedContainers("container", local.Containers, forwarded.Containers))
	for i := range local.EphemeralContainers {
		changes = append(changes, fmt.Sprintf("ephemeral container %q", local.EphemeralContainers[i].Name))
	}
	if !ptr.Equal(local.ActiveDeadlineSeconds, forwarded.ActiveDeadlineSeconds) {
		changes = append(changes, "activeDeadlineSeconds")
	}
	return changes
}

// changedContainers expects the containers in the same order: containers can be neither added nor removed.
func changedContainers(kind string, local, forwarded []corev1.Container) (changes []string) {
	for i := range min(len(local), len(forwarded)) {
		was, is := &forwarded[i], &local[i]
		if was.Name != is.Name {
			continue // An admission webhook of the remote cluster has added one.
		}
		if was.Image != is.Image {
			changes = append(changes, fmt.Sprintf("image of %s %q", kind, is.Name))
		}
		if !apiequality.Semantic.DeepEqual(was.Resources, is.Resources) {
			changes = append(changes, fmt.Sprintf("resources of %s %q", kind, is.Name))
		}
	}
	return changes
}
