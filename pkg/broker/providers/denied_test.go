package providers

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/peering/peeringtest"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/termination"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

func askedSlice(
	namespace, name, provider string, verdict authv1beta1.ResourceSliceConditionStatus, reason, message string,
) *authv1beta1.ResourceSlice {
	slice := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	slice.Spec.ProviderClusterID, slice.Spec.Class = ptr.To(liqov1beta1.ClusterID(provider)), authv1beta1.ResourceSliceClassDefault
	slice.Status.Conditions = []authv1beta1.ResourceSliceCondition{
		{Type: authv1beta1.ResourceSliceConditionTypeAuthentication, Status: authv1beta1.ResourceSliceConditionAccepted},
		{Type: authv1beta1.ResourceSliceConditionTypeResources, Status: verdict, Reason: reason, Message: message},
	}
	return slice
}

const classDisabled = "DefaultResourceSliceClassDisabled"

// A later Liqo lets a provider refuse the class default. There is no VirtualNode then, and the reason was seen nowhere
// at the broker.
func TestADeniedSliceIsShown(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	denied := askedSlice("liqo-tenant-p1", "p1", "p1", authv1beta1.ResourceSliceConditionDenied, classDisabled, "it is disabled")
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.ProviderCluster{}, denied).
		WithObjects(peeringtest.Tenant("p1"), denied).Build()
	controller := New(Config{
		Client: c, State: state.New(state.Config{Clock: clock.RealClock{}}), Connections: remote.NewConnections(nil, nil, ""),
		Cleaner: termination.NewCleaner(termination.CleanerConfig{}), Selector: labels.Everything(),
		Changed: func(context.Context, string) {}, Restore: func(context.Context) error { return nil },
	})
	reconcile := func() (*v1alpha1.ProviderCluster, error) {
		_, err := controller.reconcile(t.Context(), "p1")
		require.NoError(t, err)
		var pc v1alpha1.ProviderCluster
		return &pc, c.Get(t.Context(), client.ObjectKey{Name: "p1"}, &pc)
	}
	pc, err := reconcile()
	require.NoError(t, err)
	ready := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ProviderReady)
	require.Equal(t, v1alpha1.ReasonNotPeered, ready.Reason)
	require.Equal(t,
		"there is no VirtualNode of this cluster: "+classDisabled+", ResourceSlice p1 of class default is denied: it is disabled",
		ready.Message)
	granted := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ProviderSlicesGranted)
	require.Equal(t, metav1.ConditionFalse, granted.Status)
	require.Equal(t, classDisabled, granted.Reason)

	denied.Status.Conditions[1].Status = authv1beta1.ResourceSliceConditionAccepted
	require.NoError(t, c.Status().Update(t.Context(), denied))
	_, err = reconcile()
	require.True(t, kerrors.IsNotFound(err), "the object of a cluster that denies nothing any more stays")
}

func TestSlicesOfOthersAreNotDenied(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	of := func(namespace, name, provider string) *authv1beta1.ResourceSlice {
		return askedSlice(namespace, name, provider, authv1beta1.ResourceSliceConditionDenied, classDisabled, "")
	}
	replicated := of("liqo-tenant-p1", "replicated", "p1")
	replicated.Labels = map[string]string{consts.ReplicationOriginLabel: "p1"}
	accepted := askedSlice("liqo-tenant-p1", "accepted", "p1", authv1beta1.ResourceSliceConditionAccepted, "", "")
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		peeringtest.Tenant("p1"), peeringtest.Tenant("evil"), replicated, accepted,
		of("liqo-tenant-p1", "b", "p1"), of("liqo-tenant-p1", "a", "p1"), of("liqo-tenant-p1", "other", "p2"),
		of("liqo-tenant-evil", "evil", "p1"), of("gone", "gone", "p1"),
	).Build()
	slices, err := New(Config{Client: c}).deniedSlices(t.Context(), "p1")
	require.NoError(t, err)
	var names []string
	for _, s := range slices {
		names = append(names, s.Name)
	}
	require.Equal(t, []string{"a", "b"}, names)
}

func TestTheConditionOfDeniedSlices(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, message string
		more            int
		wantReason      string
		wantMessage     string
	}{
		"the provider's own words": {classDisabled, "no", 0, classDisabled, "ResourceSlice s of class default is denied: no"},
		"of several, the first": {
			classDisabled, "no", 2, classDisabled, "ResourceSlice s of class default and 2 more are denied: no",
		},
		"no reason":                           {"", "", 0, "Denied", "ResourceSlice s of class default is denied"},
		"a reason that no condition may have": {"not a reason", "", 0, "Denied", "ResourceSlice s of class default is denied"},
		"a reason that is too long":           {strings.Repeat("a", 2000), "", 0, "Denied", "ResourceSlice s of class default is denied"},
	} {
		t.Run(name, func(t *testing.T) {
			first := askedSlice("ns", "s", "p1", authv1beta1.ResourceSliceConditionDenied, tc.reason, tc.message)
			denied := []*authv1beta1.ResourceSlice{first}
			for range tc.more {
				denied = append(denied, denied[0])
			}
			var status v1alpha1.ProviderClusterStatus
			setSlicesGranted(&status, 3, denied)
			require.Equal(t, tc.wantReason, status.Conditions[0].Reason)
			require.Equal(t, tc.wantMessage, status.Conditions[0].Message)
			setSlicesGranted(&status, 3, nil)
			require.Empty(t, status.Conditions)
		})
	}
	long := askedSlice("ns", "s", "p1", authv1beta1.ResourceSliceConditionDenied, classDisabled, strings.Repeat("a", 1<<20))
	require.LessOrEqual(t, len(denials([]*authv1beta1.ResourceSlice{long})), untrusted.MaxText)
}
