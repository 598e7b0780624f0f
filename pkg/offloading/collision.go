package offloading

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// claim is a consumer's request for a namespace of this cluster that is not its own.
type claim struct {
	consumer string
	// original is the name of the namespace in the consumer's cluster.
	original string
	by       *offloadingv1beta1.NamespaceMap
}

// String names it. The name of the namespace is a consumer's text of any length.
func (c claim) String() string {
	original := untrusted.Text(untrusted.Cut(c.original, validation.DNS1123LabelMaxLength))
	return fmt.Sprintf("namespace %s of consumer %s", original, c.consumer)
}

// maxClaims bounds the claims in one message, and the claims that get an event.
const maxClaims = 5

// claimsOn returns the claims of consumers on a namespace that exists for another consumer, or for none, sorted. Liqo
// retries them indefinitely, and gives the reason only in its log (createNamespace of its NamespaceMap controller).
// Honest consumers make such claims, too: shop-us of eu and shop of us-eu both get the name shop-us-eu here.
func claimsOn(namespace *corev1.Namespace, maps []offloadingv1beta1.NamespaceMap) []claim {
	if placement.ConsumerOf(namespace) == "" && strings.HasPrefix(namespace.Name, "kube-") {
		return nil // No honest consumer maps to these.
	}
	var claims []claim
	for i := range maps {
		m := &maps[i]
		own := namespace.Annotations[consts.RemoteNamespaceManagedByAnnotationKey] == m.Namespace+"/"+m.Name
		if own || m.DeletionTimestamp != nil || !arrivedMap(m) {
			continue
		}
		for original, mapped := range m.Spec.DesiredMapping {
			if mapped == namespace.Name {
				claims = append(claims, claim{consumer: m.Labels[consts.ReplicationOriginLabel], original: original, by: m})
			}
		}
	}
	slices.SortFunc(claims, func(a, b claim) int { return strings.Compare(a.String(), b.String()) })
	return claims
}

// arrivedMap reports whether Liqo replicated a NamespaceMap from a consumer; the others map namespaces of this cluster.
func arrivedMap(m *offloadingv1beta1.NamespaceMap) bool {
	return m.Labels[consts.ReplicationStatusLabel] == "true" && m.Labels[consts.ReplicationOriginLabel] != ""
}

// reportClaims writes the claims on a namespace into its condition, and the reason why they fail into events of the
// NamespaceMaps.
func (r *reconciler) reportClaims(ctx context.Context, namespace *corev1.Namespace) error {
	var maps offloadingv1beta1.NamespaceMapList
	// They are only read here.
	if err := r.client.List(ctx, &maps, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("NamespaceMaps: %w", err)
	}
	claims := claimsOn(namespace, maps.Items)
	changed := namespace.DeepCopy()
	if !setCollision(changed, claims, metav1.NewTime(r.now())) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, changed, client.StrategicMergeFrom(namespace)); err != nil {
		return fmt.Errorf("condition %s of namespace %s: %w", v1alpha1.ConditionNameCollision, namespace.Name, err)
	}
	owner := "was not created for a consumer"
	if origin := placement.ConsumerOf(namespace); origin != "" {
		owner = "belongs to consumer " + origin
	}
	for _, c := range claims[:min(len(claims), maxClaims)] {
		r.events.Eventf(c.by, corev1.EventTypeWarning, "NamespaceTaken",
			"Liqo cannot create namespace %s for %s: it already exists and %s", namespace.Name, c, owner)
	}
	return nil
}

// setCollision sets the condition of a namespace, and reports whether it changed. A namespace that was never claimed
// has none.
func setCollision(namespace *corev1.Namespace, claims []claim, now metav1.Time) bool {
	want := corev1.NamespaceCondition{
		Type: v1alpha1.ConditionNameCollision, Status: corev1.ConditionFalse, Reason: "NotClaimed",
		Message: "no other consumer maps a namespace to this name", LastTransitionTime: now,
	}
	if len(claims) > 0 {
		texts := make([]string, 0, maxClaims)
		for _, c := range claims[:min(len(claims), maxClaims)] {
			texts = append(texts, c.String())
		}
		want.Status, want.Reason = corev1.ConditionTrue, "ClaimedByOthers"
		want.Message = fmt.Sprintf("%d other consumer namespace(s) map to this name and cannot be created here: %s",
			len(claims), strings.Join(texts, ", "))
	}
	for i := range namespace.Status.Conditions {
		is := &namespace.Status.Conditions[i]
		if is.Type != want.Type {
			continue
		}
		if is.Status == want.Status && is.Message == want.Message {
			return false
		}
		*is = want
		return true
	}
	if len(claims) == 0 {
		return false
	}
	namespace.Status.Conditions = append(namespace.Status.Conditions, want)
	return true
}

// claimed enqueues the namespaces that a NamespaceMap of a consumer starts or stops mapping to.
func claimed() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(before, after client.Object, q queue) {
		for name := range mappedBy(before).SymmetricDifference(mappedBy(after)) {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(nil, e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { enqueue(e.ObjectOld, e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { enqueue(e.Object, nil, q) },
	}
}

// mappedBy returns the names to which a NamespaceMap of a consumer maps.
func mappedBy(o client.Object) sets.Set[string] {
	m, ok := o.(*offloadingv1beta1.NamespaceMap)
	if !ok || m.DeletionTimestamp != nil || !arrivedMap(m) {
		return nil
	}
	return sets.New(slices.Collect(maps.Values(m.Spec.DesiredMapping))...)
}
