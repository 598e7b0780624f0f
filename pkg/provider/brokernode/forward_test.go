package brokernode

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// The broker relies on this deadline: after it, the creation has taken effect or never will.
func TestAnAPIServerIsToldHowLongACreationMayTake(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
		assert.NoError(t, err)
		assert.Less(t, timeout, v1alpha1.CreationTimeout)
		assert.Greater(t, timeout, v1alpha1.CreationTimeout/2)
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.URL.Query().Get("fieldManager"))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"metadata":{"name":"a","uid":"there"}}`))
	}))
	defer server.Close()
	client, err := liqoclient.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	at := client.OffloadingV1beta1()
	checked := 0
	created, err := timely{at.ShadowPods("ns"), at.RESTClient(), func(context.Context) error {
		require.Empty(t, asked)
		checked++
		return nil
	}}.Create(t.Context(),
		&offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}},
		metav1.CreateOptions{FieldManager: "reflection"})
	require.NoError(t, err)
	require.EqualValues(t, "there", created.UID)
	require.Equal(t, 1, checked)
	require.Equal(t, []string{"POST /apis/offloading.liqo.io/v1beta1/namespaces/ns/shadowpods reflection"}, asked)
}

// waiting is a rate limiter that calls a function instead of waiting.
type waiting struct {
	flowcontrol.RateLimiter
	wait func() error
}

func (w waiting) Wait(context.Context) error { return w.wait() }

// The broker's deadline starts when it removes the assignment: a pod that was waiting for the rate limit then is not
// forwarded any more.
func TestWhetherAPodIsStillAssignedIsAskedWhenItsTurnHasCome(t *testing.T) {
	errElsewhere, errLimit := errors.New("assigned elsewhere"), errors.New("no turn")
	for name, tc := range map[string]struct{ wait, ready, want error }{
		"it is assigned elsewhere meanwhile": {nil, errElsewhere, errElsewhere},
		"it gets no turn":                    {errLimit, nil, errLimit},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { assert.Fail(t, "it was sent") }))
			defer server.Close()
			waited := false
			client, err := liqoclient.NewForConfig(&rest.Config{Host: server.URL, RateLimiter: waiting{
				RateLimiter: flowcontrol.NewFakeAlwaysRateLimiter(), wait: func() error {
					waited = true
					return tc.wait
				},
			}})
			require.NoError(t, err)
			at := client.OffloadingV1beta1()
			_, err = timely{at.ShadowPods("ns"), at.RESTClient(), func(context.Context) error {
				require.True(t, waited)
				return tc.ready
			}}.Create(t.Context(),
				&offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}, metav1.CreateOptions{})
			require.ErrorIs(t, err, tc.want)
			require.ErrorIs(t, err, errUnsent)

			r := releases{uncertain: map[string]time.Time{}}
			r.observeCreate("a", err)
			require.Empty(t, r.uncertain, "nothing may still be created")
		})
	}
}

// The API server of this cluster, which is asked whether a pod is still assigned, has just started and has not loaded
// its roles yet.
func TestARefusalOfTheOwnAPIServerIsNoneOfTheProvider(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "a", UID: "a", Labels: map[string]string{v1alpha1.VirtualNodeLabel: "v1"},
	}}
	kube := kubefake.NewClientset(pod)
	kube.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, kerrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("no role"))
	})
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	require.NoError(t, indexer.Add(pod))
	f := &Forwarder{
		View: View{VirtualNode: "v1"}, Clock: clock.RealClock{}, Log: logr.Discard(),
		Pods:    func(namespace string) corev1client.PodInterface { return kube.CoreV1().Pods(namespace) },
		Refused: func(reason string) { assert.Fail(t, "refused: "+reason) },
	}
	there := liqofake.NewSimpleClientset().OffloadingV1beta1()
	_, err := f.create(t.Context(), corev1listers.NewPodLister(indexer).Pods("ns"), timely{ShadowPodInterface: there.ShadowPods("ns-home")},
		&offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns-home", Name: "a"}}, metav1.CreateOptions{})
	require.ErrorIs(t, err, errUnsent)
	for _, action := range kube.Actions() {
		require.Equal(t, "get", action.GetVerb())
	}
}

// TestAProviderOnlyPrefersToSpreadOverZones checks the ShadowPod that a provider gets: its Nodes may have no zones.
func TestAProviderOnlyPrefersToSpreadOverZones(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "a", UID: "a", Labels: map[string]string{v1alpha1.VirtualNodeLabel: "v1"},
	}}
	kube := kubefake.NewClientset(pod)
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	require.NoError(t, indexer.Add(pod))
	f := &Forwarder{
		View: View{VirtualNode: "v1"}, Clock: clock.RealClock{}, Log: logr.Discard(),
		Pods: func(namespace string) corev1client.PodInterface { return kube.CoreV1().Pods(namespace) },
	}
	shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns-home", Name: "a"}}
	shadow.Spec.Pod.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		TopologyKey: corev1.LabelTopologyZone, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule,
	}}
	there := liqofake.NewSimpleClientset().OffloadingV1beta1()
	created, err := f.create(t.Context(), corev1listers.NewPodLister(indexer).Pods("ns"),
		timely{ShadowPodInterface: there.ShadowPods("ns-home")}, shadow, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.ScheduleAnyway, created.Spec.Pod.TopologySpreadConstraints[0].WhenUnsatisfiable)
	require.Equal(t, corev1.DoNotSchedule, shadow.Spec.Pod.TopologySpreadConstraints[0].WhenUnsatisfiable)
}
