package brokernode

import (
	"context"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1listers "k8s.io/client-go/listers/core/v1"

	offloadingclient "github.com/liqotech/liqo/pkg/client/clientset/versioned/typed/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/refusal"
)

func (f *Forwarder) report(ctx context.Context, pod *corev1.Pod, r refusal.Refusal) error {
	r.VirtualNode, r.At = f.View.VirtualNode, f.Clock.Now()
	written, err := refusal.Report(ctx, f.Pods(pod.Namespace), pod, r)
	if written {
		f.Refused(r.Reason)
	}
	return err
}

// quotaExceeded matches the answer of the provider's API server when Liqo's ShadowPod webhook finds that the quota is
// exceeded (checkResources in pkg/webhooks/shadowpod/peeringinfo.go; the webhook's name comes from its chart). The
// answer names only one resource, even if more are exceeded. The answer of another webhook may quote a text that the
// creator of the pod chose.
var quotaExceeded = regexp.MustCompile(`^admission webhook "[^"]*liqo\.io" denied the request: peering (\S*) quota usage exceeded`)

// refusalOf interprets a 403 answer of the provider cluster. Liqo's webhook denies with the same code for an exceeded
// quota and for every other reason; only the text differs.
func refusalOf(forbidden error) refusal.Refusal {
	r := refusal.Refusal{Reason: refusal.Forbidden, Message: forbidden.Error()}
	if match := quotaExceeded.FindStringSubmatch(r.Message); match != nil {
		r.Reason = refusal.QuotaExceeded
		if len(validation.IsQualifiedName(match[1])) == 0 {
			r.Exceeded = corev1.ResourceName(match[1])
		}
	}
	return r
}

// mayHave reports whether the provider cluster has a ShadowPod of that name, or does not answer. If it has one, Liqo's
// webhook answers 403 before the API server can answer AlreadyExists (getOrCreateShadowPodDescription in
// pkg/webhooks/shadowpod: it "is already running", or "still exists"). Liqo creates a ShadowPod twice if the answer to
// the first request was lost, or if the cache was filled before the first was created.
func mayHave(ctx context.Context, shadows offloadingclient.ShadowPodInterface, name string) bool {
	_, err := shadows.Get(ctx, name, metav1.GetOptions{})
	return !kerrors.IsNotFound(err) && !kerrors.IsForbidden(err)
}

// Fallback returns Liqo's reflector of pods in namespaces that are not offloaded to the provider cluster, with one
// difference: Liqo marks such a pod Failed if it has run before, at another provider cluster. Here the rejection is
// reported, and the broker moves the pod, whether it is running or not. The caller must ensure that the namespace is
// not offloaded, and not only that its reflection has not started.
func (f *Forwarder) Fallback(local func(namespace string) corev1listers.PodNamespaceLister,
	next manager.FallbackReflector,
) manager.FallbackReflector {
	return refusingFallback{FallbackReflector: next, forwarder: f, local: local}
}

type refusingFallback struct {
	manager.FallbackReflector
	forwarder *Forwarder
	local     func(namespace string) corev1listers.PodNamespaceLister
}

func (r refusingFallback) Handle(ctx context.Context, key types.NamespacedName) error {
	pod, err := r.local(key.Namespace).Get(key.Name)
	if err != nil || pod.DeletionTimestamp != nil || placement.Terminal(pod) {
		return r.FallbackReflector.Handle(ctx, key)
	}
	return r.forwarder.report(ctx, pod, refusal.Refusal{
		Reason:  refusal.NamespaceNotOffloaded,
		Message: fmt.Sprintf("namespace %s is not offloaded to this provider cluster", key.Namespace),
	})
}
