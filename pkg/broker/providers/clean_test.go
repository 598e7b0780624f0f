package providers

import (
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/belief"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote/remotetest"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// A namespace that is not ours at the provider, or whose RoleBinding was removed there, refuses the list for good.
func TestANamespaceThatRefusesDoesNotKeepAProviderUnclean(t *testing.T) {
	refused := kerrors.NewForbidden(schema.GroupResource{Resource: "shadowpods"}, "", errors.New("no RoleBinding"))
	const interval = 5 * time.Second
	for name, tc := range map[string]struct {
		answers map[string]error
		want    time.Duration
		clean   bool
	}{
		"all namespaces answer":          {nil, time.Millisecond, true},
		"one refuses":                    {map[string]error{"a-p1": refused}, time.Millisecond, true},
		"all refuse":                     {map[string]error{"a-p1": refused, "b-p1": refused}, interval, false},
		"one refuses, one does not list": {map[string]error{"a-p1": refused, "b-p1": errors.New("no answer")}, interval, false},
	} {
		t.Run(name, func(t *testing.T) {
			scheme, err := apischeme.New()
			require.NoError(t, err)
			virtualNode := &offloadingv1beta1.VirtualNode{
				ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-p1", Name: "v1"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "p1"},
			}
			liqo := liqofake.NewSimpleClientset()
			liqo.PrependReactor("list", "shadowpods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				err := tc.answers[action.GetNamespace()]
				return err != nil, nil, err
			})
			known := belief.New(belief.Config{Clock: clock.RealClock{}})
			known.SetProvider("p1", belief.ProviderSpec{
				Enabled: true, VirtualNodes: map[string]bool{"v1": false}, RemoteNamespaces: map[string]string{"a": "a-p1", "b": "b-p1"},
			}, &v1alpha1.ProviderClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ProviderClean, Status: metav1.ConditionFalse}}})
			known.ObserveProbe("p1", belief.Probe{Ended: time.Now(), Answered: true})
			connections := remote.NewConnections(nil, nil, "")
			connections.Set(&remote.Connection{Provider: "p1", VirtualNode: "v1", Liqo: remotetest.Liqo(liqo)})
			controller := New(Config{
				Log: testr.New(t), Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(virtualNode, tenantOf("p1")).Build(), Belief: known,
				Connections: connections, Selector: labels.Everything(), ProbeInterval: interval, RequestTimeout: time.Second,
			})
			require.Equal(t, tc.want, controller.checkClean(t.Context(), "p1"))
			_, _, uncleaned := known.Uncleaned("p1")
			require.Equal(t, tc.clean, !uncleaned)
		})
	}
}
