package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication/forge"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// unknown checks that the broker deletes a ProviderCluster whose cluster has no VirtualNode, unless an administrator
// changed its spec.
func (b *brokered) unknown(t *testing.T) {
	create := func(name string, spec brokeringv1alpha1.ProviderClusterSpec) {
		t.Helper()
		pc := &brokeringv1alpha1.ProviderCluster{Spec: spec}
		pc.Name = name
		require.NoError(t, b.broker.Client.Create(t.Context(), pc))
		t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(b.broker.Client.Delete(context.Background(), pc))) })
	}
	create("decided", brokeringv1alpha1.ProviderClusterSpec{Cordoned: true})
	create("undecided", brokeringv1alpha1.ProviderClusterSpec{})
	eventually(t, followTime, func(ctx context.Context) error {
		var pc brokeringv1alpha1.ProviderCluster
		if err := b.broker.Client.Get(ctx, client.ObjectKey{Name: "undecided"}, &pc); !kerrors.IsNotFound(err) {
			return fmt.Errorf("it is still there: %w", err)
		}
		if err := b.broker.Client.Get(ctx, client.ObjectKey{Name: "decided"}, &pc); err != nil {
			return err
		}
		return conditionIs(&pc, brokeringv1alpha1.ProviderReady, "NotPeered")
	})
}

// denied tests a slice that a provider denies, as a later Liqo does for the class default. No controller handles the
// class of this slice, so the test writes the status at the provider, and Liqo copies it to the broker.
func (b *brokered) denied(t *testing.T) {
	const reason = "DefaultResourceSliceClassDisabled"
	provider := b.providers[2]
	slice := forge.ResourceSlice("denied", "liqo-tenant-"+provider.Name)
	require.NoError(t,
		forge.MutateResourceSlice(slice, liqov1beta1.ClusterID(provider.Name), &forge.ResourceSliceOptions{Class: "undecided"}, true))
	require.NoError(t, b.broker.Client.Create(t.Context(), slice))
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(b.broker.Client.Delete(context.Background(), slice))) })
	there := client.ObjectKey{Namespace: "liqo-tenant-" + b.broker.Name, Name: slice.Name}
	eventually(t, followTime, func(ctx context.Context) error {
		var replica authv1beta1.ResourceSlice
		if err := provider.Client.Get(ctx, there, &replica); err != nil {
			return err
		}
		authentication.EnsureCondition(&replica, authv1beta1.ResourceSliceConditionTypeResources, authv1beta1.ResourceSliceConditionDenied,
			reason, "the class is disabled")
		return provider.Client.Status().Update(ctx, &replica)
	})
	granted := func(ctx context.Context) (*metav1.Condition, error) {
		var pc brokeringv1alpha1.ProviderCluster
		err := b.broker.Client.Get(ctx, client.ObjectKey{Name: provider.Name}, &pc)
		return meta.FindStatusCondition(pc.Status.Conditions, brokeringv1alpha1.ProviderSlicesGranted), err
	}
	eventually(t, followTime, func(ctx context.Context) error {
		c, err := granted(ctx)
		if err == nil && (c == nil || c.Reason != reason) {
			err = fmt.Errorf("condition SlicesGranted: %+v", c)
		}
		return err
	})
	require.NoError(t, b.broker.Client.Delete(t.Context(), slice))
	eventually(t, followTime, func(ctx context.Context) error {
		c, err := granted(ctx)
		if err == nil && c != nil {
			err = fmt.Errorf("condition SlicesGranted is still there: %+v", c)
		}
		return err
	})
}

// changeKubelet changes the container of a provider's virtual kubelet, and returns the previous one.
func (b *brokered) changeKubelet(t *testing.T, provider string, change func(*corev1.Container)) (before corev1.Container) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var vn offloadingv1beta1.VirtualNode
		if err := b.broker.Client.Get(ctx, client.ObjectKey{Namespace: "liqo-tenant-" + provider, Name: provider}, &vn); err != nil {
			return err
		}
		container := &vn.Spec.Template.Spec.Template.Spec.Containers[0]
		before = *container.DeepCopy()
		change(container)
		return b.broker.Client.Update(ctx, &vn)
	}))
	return before
}

// kubelets describes the virtual kubelets of a provider, how their containers ended, and the holder of their lease.
func (b *brokered) kubelets(ctx context.Context, provider string) string {
	var text strings.Builder
	all, err := pods(ctx, b.broker, "liqo-tenant-"+provider)
	for i := range all {
		fmt.Fprintf(&text, "pod %s: %s, %+v; ", all[i].Name, all[i].Status.Phase, all[i].Status.ContainerStatuses)
	}
	var lease coordinationv1.Lease
	err = errors.Join(err, b.broker.Client.Get(ctx, client.ObjectKey{Namespace: "liqo-tenant-" + provider, Name: provider}, &lease))
	fmt.Fprintf(&text, "lease of %q, renewed %s; %v", ptr.Deref(lease.Spec.HolderIdentity, ""), lease.Spec.RenewTime, err)
	return text.String()
}

// conditionIs checks the reason of a provider's condition.
func conditionIs(pc *brokeringv1alpha1.ProviderCluster, kind, reason string) error {
	for i := range pc.Status.Conditions {
		if c := &pc.Status.Conditions[i]; c.Type == kind && c.Reason == reason {
			return nil
		}
	}
	return fmt.Errorf("%s of %s is not %s: %v", kind, pc.Name, reason, pc.Status.Conditions)
}
