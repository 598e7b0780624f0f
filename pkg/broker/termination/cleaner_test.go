package termination

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/peering/peeringtest"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote/remotetest"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
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
				ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-p1", Name: "v1"},
				Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: "p1"},
			}
			liqo := liqofake.NewSimpleClientset()
			liqo.PrependReactor("list", "shadowpods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				err := tc.answers[action.GetNamespace()]
				return err != nil, nil, err
			})
			known := state.New(state.Config{Clock: clock.RealClock{}})
			known.SetProvider("p1", state.ProviderSpec{
				Enabled: true, VirtualNodes: map[string]bool{"v1": false}, RemoteNamespaces: map[string]string{"a": "a-p1", "b": "b-p1"},
			}, &v1alpha1.ProviderClusterStatus{
				Conditions: []metav1.Condition{{Type: v1alpha1.ProviderClean, Status: metav1.ConditionFalse}},
			})
			known.ObserveProbe("p1", state.Probe{Ended: time.Now(), Answered: true})
			connections := remote.NewConnections(nil, nil, "")
			connections.Set(&remote.Connection{Provider: "p1", VirtualNode: "v1", Liqo: remotetest.Liqo(liqo)})
			controller := NewCleaner(CleanerConfig{
				Log: testr.New(t), Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(virtualNode, peeringtest.Tenant("p1"),
					sliceOf("liqo-tenant-p1", "p1", "home")).Build(), State: known,
				Connections: connections, Selector: labels.Everything(), Providers: &requeue.Queue{},
				Interval: interval, RequestTimeout: time.Second,
			})
			require.Equal(t, tc.want, controller.reconcile(t.Context(), "p1"))
			uncleaned := unclean(known)
			require.Equal(t, tc.clean, !uncleaned)
		})
	}
}

// Before a provider answered again, one of its two VirtualNodes was deleted: no virtual kubelet deletes its ShadowPods,
// and Liqo keeps the namespace for the other one.
func TestWhatAVirtualNodeThatIsGoneHasLeftIsDeleted(t *testing.T) {
	// The provider p1 has v2, which the broker uses, v3, which it does not use, and v4, which the cache does not show
	// yet.
	virtualNode := func(name string) *offloadingv1beta1.VirtualNode {
		return &offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "liqo-tenant-p1", Name: name, Labels: map[string]string{"used": fmt.Sprint(name != "v3")},
			},
			Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "p1"},
		}
	}
	at := func(provider, virtualNode, movingFrom string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: "pod",
			Labels:      map[string]string{v1alpha1.VirtualNodeLabel: virtualNode, v1alpha1.ProviderLabel: provider},
			Annotations: map[string]string{v1alpha1.MovingFromAnnotation: movingFrom, v1alpha1.MovingFromProviderAnnotation: provider},
		}}
	}
	pod := func(virtualNode, movingFrom string) *corev1.Pod { return at("p1", virtualNode, movingFrom) }
	for name, tc := range map[string]struct {
		node, origin string
		pod          *corev1.Pod
		unknown      bool // This cluster has no ResourceSlice, so its id is not known.
		deleted      bool
		clean        bool
	}{
		"of a VirtualNode that is gone, and its pod is too":         {node: "v1", origin: "broker", deleted: true},
		"of a VirtualNode that is gone, and its pod is elsewhere":   {node: "v1", origin: "broker", pod: pod("v2", ""), deleted: true},
		"of a VirtualNode that is gone, and its pod is still there": {node: "v1", origin: "broker", pod: pod("v1", ""), clean: true},
		"of a VirtualNode that is gone, and its pod is asked about": {node: "v1", origin: "broker", pod: pod("", "v1")},
		"of a VirtualNode that is gone, and its pod is at another provider's of the name": {
			node: "v1", origin: "broker", pod: at("p2", "v1", ""), deleted: true,
		},
		"of a VirtualNode that is gone, and its pod leaves another provider's of the name": {
			node: "v1", origin: "broker", pod: at("p2", "", "v1"), deleted: true,
		},
		"of a VirtualNode that is there, and its pod is at another provider's of the name": {
			node: "v2", origin: "broker", pod: at("p2", "v2", ""),
		},
		"of a VirtualNode that is there, and its pod is elsewhere": {
			node: "v2", origin: "broker", pod: pod("v1", ""),
		},
		"of a VirtualNode that the broker does not use":                    {node: "v3", origin: "broker", clean: true},
		"of a VirtualNode that the cache does not show yet":                {node: "v4", origin: "broker", clean: true},
		"of another cluster":                                               {node: "v1", origin: "other", clean: true},
		"of no cluster":                                                    {node: "v1", clean: true},
		"of no VirtualNode":                                                {origin: "broker", clean: true},
		"of a VirtualNode that is gone, and the cluster's id is not known": {node: "v1", origin: "broker", unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			scheme, err := apischeme.New()
			require.NoError(t, err)
			objects := []client.Object{virtualNode("v2"), virtualNode("v3"), peeringtest.Tenant("p1"), peeringtest.Tenant("c1")}
			if !tc.unknown {
				objects = append(objects, sliceOf("liqo-tenant-p1", "p1", "broker"))
			}
			// A consumer that writes this cannot have others' ShadowPods deleted.
			objects = append(objects, sliceOf("liqo-tenant-c1", "p1", "other"))
			if tc.pod != nil {
				objects = append(objects, tc.pod)
			}
			liqo := liqofake.NewSimpleClientset(&offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "a-p1", Name: "pod", UID: "shadow",
				Labels: map[string]string{forge.LiqoOriginClusterNodeName: tc.node, forge.LiqoOriginClusterIDKey: tc.origin},
			}})
			known := state.New(state.Config{Clock: clock.RealClock{}})
			known.SetProvider("p1", state.ProviderSpec{
				Enabled: true, VirtualNodes: map[string]bool{"v2": false}, RemoteNamespaces: map[string]string{"a": "a-p1"},
			}, &v1alpha1.ProviderClusterStatus{
				Conditions: []metav1.Condition{{Type: v1alpha1.ProviderClean, Status: metav1.ConditionFalse}},
			})
			known.ObserveProbe("p1", state.Probe{Ended: time.Now(), Answered: true})
			connections := remote.NewConnections(nil, nil, "")
			connections.Set(&remote.Connection{Provider: "p1", VirtualNode: "v2", Liqo: remotetest.Liqo(liqo)})
			live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(virtualNode("v2"), virtualNode("v3"), virtualNode("v4"))
			controller := NewCleaner(CleanerConfig{
				Log: testr.New(t), Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), State: known,
				Live:        live.Build(),
				Connections: connections, Selector: labels.SelectorFromSet(labels.Set{"used": "true"}), Providers: &requeue.Queue{},
				Interval: 5 * time.Second, RequestTimeout: time.Second,
			})
			controller.reconcile(t.Context(), "p1")
			left, err := liqo.OffloadingV1beta1().ShadowPods("a-p1").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			require.Equal(t, tc.deleted, len(left.Items) == 0, "deleted")
			uncleaned := unclean(known)
			require.Equal(t, tc.clean, !uncleaned, "clean")
			if tc.deleted {
				for _, action := range liqo.Actions() {
					if deletion, is := action.(clienttesting.DeleteAction); is {
						require.Equal(t, "shadow", string(*deletion.GetDeleteOptions().Preconditions.UID))
					}
				}
				controller.reconcile(t.Context(), "p1") // It is clean once the list shows that.
				uncleaned := unclean(known)
				require.False(t, uncleaned)
			}
		})
	}
}

// sliceOf is a ResourceSlice in a tenant namespace, by which a consumer asks a provider.
func sliceOf(namespace, provider, consumer string) *authv1beta1.ResourceSlice {
	return &authv1beta1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "slice"},
		Spec: authv1beta1.ResourceSliceSpec{
			ProviderClusterID: ptr.To(liqov1beta1.ClusterID(provider)), ConsumerClusterID: ptr.To(liqov1beta1.ClusterID(consumer)),
		},
	}
}

// A provider that comes back after an outage, and takes a second for a list, occupies a worker in proportion to its
// namespaces, whose number consumers choose.
func TestAProviderThatListsSlowlyDoesNotHoldAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme, err := apischeme.New()
		require.NoError(t, err)
		const namespaces = 400
		mapped := map[string]string{}
		for i := range namespaces {
			mapped[fmt.Sprint("a", i)] = fmt.Sprint("a", i, "-p1")
		}
		virtualNode := &offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-p1", Name: "v1"},
			Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: "p1"},
		}
		liqo, lists := liqofake.NewSimpleClientset(), map[string]int{}
		liqo.PrependReactor("list", "shadowpods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			lists[action.GetNamespace()]++
			time.Sleep(time.Second)
			return false, nil, nil
		})
		known := state.New(state.Config{Clock: clock.RealClock{}})
		known.SetProvider("p1", state.ProviderSpec{
			Enabled: true, VirtualNodes: map[string]bool{"v1": false}, RemoteNamespaces: mapped,
		}, &v1alpha1.ProviderClusterStatus{Conditions: []metav1.Condition{{
			Type: v1alpha1.ProviderClean, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMovedPodsLeft,
		}}})
		known.ObserveProbe("p1", state.Probe{Ended: time.Now(), Answered: true})
		connections := remote.NewConnections(nil, nil, "")
		connections.Set(&remote.Connection{Provider: "p1", VirtualNode: "v1", Liqo: remotetest.Liqo(liqo)})
		controller := NewCleaner(CleanerConfig{
			Log: testr.New(t), State: known, Connections: connections, Selector: labels.Everything(), Providers: &requeue.Queue{},
			Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(virtualNode, peeringtest.Tenant("p1"),
				sliceOf("liqo-tenant-p1", "p1", "home")).Build(),
			Interval: 5 * time.Second, RequestTimeout: 10 * time.Second,
		})
		// The caller that requests the check does not wait for it.
		require.Equal(t, controller.Interval, controller.Request("p1"))
		require.Empty(t, lists)

		// The check continues where it stopped, so that each provider is checked.
		uncleaned := true
		for turns := 0; uncleaned && turns < namespaces; turns++ {
			began := time.Now()
			require.Equal(t, time.Millisecond, controller.reconcile(t.Context(), "p1"))
			require.LessOrEqual(t, time.Since(began), 2*controller.RequestTimeout)
			uncleaned = unclean(known)
		}
		require.False(t, uncleaned)
		require.Len(t, lists, namespaces)
		for namespace, times := range lists {
			require.Equal(t, 1, times, namespace)
		}
		require.Zero(t, controller.Request("p1"))
	})
}

// A provider is back after an outage. Its answers are slow, and a namespace there has many ShadowPods of other
// consumers. The position in their list is kept from one reconciliation to the next.
func TestALargeNamespaceIsClean(t *testing.T) {
	const all = 30_000
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		until, next := min(all, from+limit), ""
		if until < all {
			next = strconv.Itoa(until)
		}
		time.Sleep(5 * time.Millisecond) // The answer takes that long.
		fmt.Fprintf(w, `{"kind":"ShadowPodList","apiVersion":"v1","metadata":{"continue":%q},"items":[`, next)
		for i := from; i < until; i++ {
			if i > from {
				_, _ = w.Write([]byte(","))
			}
			fmt.Fprintf(w, `{"metadata":{"name":"x-%d","labels":{"offloading.liqo.io/origin":"other","offloading.liqo.io/nodename":"other"}}}`, i)
		}
		_, _ = w.Write([]byte("]}"))
	}))
	defer server.Close()
	liqo, err := liqoclient.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	scheme, err := apischeme.New()
	require.NoError(t, err)
	virtualNode := &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-p1", Name: "v1"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "p1"},
	}
	known := state.New(state.Config{Clock: clock.RealClock{}})
	known.SetProvider("p1", state.ProviderSpec{
		Enabled: true, VirtualNodes: map[string]bool{"v1": false}, RemoteNamespaces: map[string]string{"a": "a-p1"},
	}, &v1alpha1.ProviderClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ProviderClean, Status: metav1.ConditionFalse}}})
	known.ObserveProbe("p1", state.Probe{Ended: time.Now(), Answered: true})
	connections := remote.NewConnections(nil, nil, "")
	connections.Set(&remote.Connection{Provider: "p1", VirtualNode: "v1", Liqo: liqo})
	c := NewCleaner(CleanerConfig{
		Log: logr.Discard(), Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(virtualNode, peeringtest.Tenant("p1"),
			sliceOf("liqo-tenant-p1", "p1", "home")).Build(),
		State: known, Connections: connections, Selector: labels.Everything(), Providers: &requeue.Queue{},
		Interval: time.Second, RequestTimeout: time.Second,
	})
	for range 1000 {
		c.reconcile(t.Context(), "p1")
		if !unclean(known) {
			break
		}
	}
	uncleaned := unclean(known)
	require.False(t, uncleaned)
}

// unclean reports whether p1 may still run pods that were moved away.
func unclean(known *state.Federation) bool {
	p1, _ := known.Provider("p1")
	return p1.Unclean
}
