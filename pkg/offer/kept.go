package offer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication"
	"github.com/liqotech/liqo/pkg/utils/resource"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// user is the identity of a ResourceSlice, with which its consumer creates ShadowPods.
type user struct{ consumer, name string }

// creatorOf returns the user of a slice: the common name of its certificate, as Liqo's webhook writes it into a label of the
// ShadowPods (pkg/webhooks/shadowpod), which their pods have, too. Liqo's quota of the slice counts the pods of that label.
func creatorOf(slice *authv1beta1.ResourceSlice) user {
	return user{consumerOf(slice), resource.EscapeLabel(authentication.CommonNameResourceSliceCSR(slice))}
}

// kept is what pods request, by the user that created them.
type kept map[user]resources.Amounts

// pods returns what the pods of consumers request that have not ended. A consumer that deletes a ResourceSlice keeps them: Liqo
// removes the quota of the slice, and no pod.
func (r *reconciler) pods(ctx context.Context) (kept, error) {
	var list corev1.PodList
	if err := r.client.List(ctx, &list, client.HasLabels{consts.CreatorLabelKey}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("pods of consumers: %w", err)
	}
	by := kept{}
	for i := range list.Items {
		pod := &list.Items[i]
		of := user{pod.Labels[forge.LiqoOriginClusterIDKey], pod.Labels[consts.CreatorLabelKey]}
		if of.consumer == "" || placement.Terminal(pod) {
			continue
		}
		if by[of] == nil {
			by[of] = resources.Amounts{}
		}
		by[of].Add(resources.PodRequests(&pod.Spec))
	}
	return by, nil
}

// without returns what is not of some users, by the consumer.
func (k kept) without(covered sets.Set[user]) map[string]resources.Amounts {
	rest := map[string]resources.Amounts{}
	for of, amounts := range k {
		if covered.Has(of) {
			continue
		}
		if rest[of.consumer] == nil {
			rest[of.consumer] = resources.Amounts{}
		}
		rest[of.consumer].Add(amounts)
	}
	return rest
}
