package providers

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/peering/peeringtest"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// One provider hangs, one answers, one fails.
func TestNoProviderWaitsForAnother(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	hang := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	defer hanging.Close()
	defer close(hang)
	answering := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte("ok"))
	}))
	defer answering.Close()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError) // As /readyz does without etcd.
		_, _ = w.Write([]byte(strings.Repeat("etcd failed\n", 1000)))
	}))
	defer broken.Close()

	home := kubefake.NewClientset(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-answering", Name: "answering-1"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("vk"), LeaseDurationSeconds: ptr.To(int32(15)), RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	})
	connections := remote.NewConnections(home, nil, "")
	for id, server := range map[string]*httptest.Server{"hanging": hanging, "answering": answering, "broken": broken} {
		kube, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, Transport: &http.Transport{DisableKeepAlives: true}})
		require.NoError(t, err)
		connections.Set(&remote.Connection{Provider: id, VirtualNode: id + "-1", Probes: kube.Discovery().RESTClient()})
	}
	scheme, err := apischeme.New()
	require.NoError(t, err)
	known := state.New(state.Config{Clock: clock.RealClock{}, ProbeInterval: time.Second})
	var inAPI []client.Object
	ids := []string{"hanging", "answering", "broken", "unconnected"}
	for _, id := range ids {
		cluster := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: id}}
		inAPI = append(inAPI, cluster, peeringtest.Tenant(id), &offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + id, Name: id + "-1"},
			Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: liqov1beta1.ClusterID(id)},
		})
		known.SetProvider(id, state.ProviderSpec{VirtualNodes: map[string]bool{id + "-1": false}}, &v1alpha1.ProviderClusterStatus{})
	}
	inAPI = append(inAPI, &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
	c := New(Config{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(inAPI...).Build(), Home: home, Clock: clock.RealClock{},
		State: known, Connections: connections, Queue: &requeue.Queue{}, Selector: labels.Everything(),
		ProbeInterval: time.Second, ProbeTimeout: 2 * time.Second,
	})

	done := make(chan string, len(ids))
	for _, id := range ids {
		go func() {
			result, err := c.reconcileProbe(t.Context(), id)
			assert.NoError(t, err)
			assert.GreaterOrEqual(t, result.RequeueAfter, time.Second)
			done <- id
		}()
	}
	for range ids[1:] {
		require.NotEqual(t, "hanging", <-done, "the others are probed meanwhile")
	}
	require.Equal(t, "hanging", <-done)
	probed := func(id string) state.Provider {
		p, ok := known.Provider(id)
		require.True(t, ok)
		return p
	}
	require.Equal(t, 1, probed("answering").ProbesAnswered)
	require.Equal(t, map[string]bool{"answering-1": true}, probed("answering").Kubelets)
	require.Equal(t, "no answer within 2s", probed("hanging").Problem)
	require.Equal(t, 1, probed("broken").ProbesFailed)
	require.Equal(t, "/readyz answers with the status 500", probed("broken").Problem)
	require.NotContains(t, probed("broken").Problem, "\n")
	require.Equal(t, map[string]bool{"broken-1": false}, probed("broken").Kubelets, "there is no lease")
	require.Equal(t, "no kubeconfig", probed("unconnected").Problem)

	result, err := c.reconcileProbe(t.Context(), "new")
	require.NoError(t, err)
	require.Zero(t, result, "it is requeued once it is reconciled")
	result, err = c.reconcileProbe(t.Context(), "gone")
	require.NoError(t, err)
	require.Zero(t, result, "its probes end with its object")
}

// The clock of the holder of a lease may differ by hours. Only the first look at a lease compares the two.
func TestALeaseIsLiveWhileItIsSeenToBeRenewed(t *testing.T) {
	type look struct {
		after, renewed time.Duration // Since noon: of the broker's clock, and in the lease.
		live           bool
	}
	for name, looks := range map[string][]look{
		"the holder's clock is right": {
			{0, 0, true}, {10 * time.Second, 10 * time.Second, true}, {40 * time.Second, 10 * time.Second, true},
		},
		"the holder's clock is an hour slow": {
			{0, -time.Hour, false},
			{5 * time.Second, -time.Hour + 5*time.Second, true},
			{30 * time.Second, -time.Hour + 30*time.Second, true},
		},
		"the holder's clock is an hour fast, and the holder is gone": {
			{0, time.Hour, true}, {30 * time.Second, time.Hour, true}, {31 * time.Second, time.Hour, false},
		},
		"it is renewed no more": {{0, 0, true}, {5 * time.Second, 5 * time.Second, true}, {36 * time.Second, 5 * time.Second, false}},
		"it was renewed long ago": {
			{0, -time.Minute, false}, {5 * time.Second, -time.Minute, false}, {10 * time.Second, 10 * time.Second, true},
		},
		"the holder's clock is set back": {{0, 0, true}, {31 * time.Second, -time.Hour, true}},
	} {
		t.Run(name, func(t *testing.T) {
			home, now := kubefake.NewClientset(), clocktesting.NewFakePassiveClock(noon)
			c := New(Config{Home: home, Clock: now, ProbeTimeout: time.Second})
			leases := home.CoordinationV1().Leases("tenant")
			for i, look := range looks {
				now.SetTime(noon.Add(look.after))
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "q1"}, Spec: coordinationv1.LeaseSpec{
					HolderIdentity: ptr.To("vk"), LeaseDurationSeconds: ptr.To(int32(15)),
					RenewTime: &metav1.MicroTime{Time: noon.Add(look.renewed)},
				}}
				_, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
				if kerrors.IsAlreadyExists(err) {
					_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
				}
				require.NoError(t, err)
				got, known := c.kubeletLease(t.Context(), "q", "tenant", "q1")
				require.True(t, known)
				require.Equal(t, look.live, got.live, "look %d", i)
				require.Zero(t, got.answered)
			}
			require.Len(t, c.leases, 1)
			c.forgetLeases("q", nil)
			require.Empty(t, c.leases, "the provider is gone")
		})
	}
}

// A virtual kubelet says in its lease how long ago its provider answered it. Its clock may differ by hours.
func TestALeaseTellsWhenAProviderAnswered(t *testing.T) {
	for name, tc := range map[string]struct {
		ago  string
		want time.Time
	}{
		"it has answered":     {"vk 4s", noon.Add(6 * time.Second)},
		"it has not":          {"", time.Time{}},
		"another replica":     {"before 4s", time.Time{}},
		"no replica is named": {"4s", time.Time{}},
		"no duration":         {"vk noon", time.Time{}},
		"the future":          {"vk -4s", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			home, now := kubefake.NewClientset(), clocktesting.NewFakePassiveClock(noon)
			c := New(Config{Home: home, Clock: now, ProbeTimeout: time.Second})
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "q1"}, Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("vk"), LeaseDurationSeconds: ptr.To(int32(15)),
				RenewTime: &metav1.MicroTime{Time: noon.Add(-time.Hour)},
			}}
			require.NoError(t, home.Tracker().Add(lease))
			_, known := c.kubeletLease(t.Context(), "q", "tenant", "q1")
			require.True(t, known)
			now.SetTime(noon.Add(10 * time.Second))
			lease = lease.DeepCopy()
			lease.Spec.RenewTime = &metav1.MicroTime{Time: noon.Add(-time.Hour + 10*time.Second)}
			if tc.ago != "" {
				lease.Annotations = map[string]string{v1alpha1.AnsweredAgoAnnotation: tc.ago}
			}
			_, err := home.CoordinationV1().Leases("tenant").Update(t.Context(), lease, metav1.UpdateOptions{})
			require.NoError(t, err)
			vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "q1"}}
			c.Connections = remote.NewConnections(nil, nil, "")
			c.State = state.New(state.Config{Clock: now})
			require.Equal(t, tc.want, c.probe(t.Context(), "q", []*offloadingv1beta1.VirtualNode{vn}).Reached)
		})
	}
}

// A provider is silent if nothing answers, or if its API server reads nothing, as without its etcd. All else moves no
// pod.
func TestAProviderThatRejectsTheBrokerIsNotSilent(t *testing.T) {
	const (
		notFound = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"kind":"pods","name":"liqo-broker-probe"}}`
		page     = "<html>not here</html>"
	)
	type answer struct {
		code int
		body string
	}
	for name, tc := range map[string]struct {
		ready, read     answer
		unmapped, unset bool
		want            string
	}{
		"401":                                  {ready: answer{401, page}, want: v1alpha1.ReasonRejects},
		"403":                                  {ready: answer{403, page}, want: v1alpha1.ReasonRejects},
		"429":                                  {ready: answer{429, page}, want: v1alpha1.ReasonRejects},
		"/readyz fails, and reads do":          {ready: answer{500, page}, read: answer{500, page}},
		"/readyz fails, and a proxy answers":   {ready: answer{500, page}, read: answer{404, page}},
		"/readyz fails, and reads do not":      {ready: answer{500, page}, read: answer{404, notFound}, want: v1alpha1.ReasonReadyzFails},
		"/readyz fails, and reads are refused": {ready: answer{503, page}, read: answer{403, page}, want: v1alpha1.ReasonReadyzFails},
		"/readyz fails, and no pod can be":     {ready: answer{500, page}, read: answer{404, notFound}, unmapped: true},
		"a page for all":                       {ready: answer{200, page}, read: answer{200, page}},
		"a page for /readyz":                   {ready: answer{200, page}, read: answer{404, notFound}, want: v1alpha1.ReasonReadyzFails},
		"no kubeconfig":                        {unset: true, want: v1alpha1.ReasonNoKubeconfig},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				is := tc.read
				if r.URL.Path == "/readyz" {
					is = tc.ready
				}
				if is.body == notFound {
					w.Header().Set("Content-Type", "application/json")
				}
				w.Header().Set("Retry-After", "1") // As of API priority and fairness.
				w.WriteHeader(is.code)
				_, _ = w.Write([]byte(is.body))
			}))
			defer server.Close()
			connections := remote.NewConnections(nil, nil, "")
			if !tc.unset {
				kube, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, Transport: &http.Transport{DisableKeepAlives: true}})
				require.NoError(t, err)
				connections.Set(&remote.Connection{Provider: "q", VirtualNode: "q1", Probes: kube.Discovery().RESTClient()})
			}
			known := state.New(state.Config{Clock: clock.RealClock{}})
			spec := state.ProviderSpec{VirtualNodes: map[string]bool{"q1": false}}
			if !tc.unmapped {
				spec.RemoteNamespaces = map[string]string{"ns": "ns-q"}
			}
			known.SetProvider("q", spec, &v1alpha1.ProviderClusterStatus{})
			c := New(Config{State: known, Connections: connections, Clock: clock.RealClock{}, ProbeTimeout: 5 * time.Second})
			vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "q1"}}
			vn.Spec.ClusterID = "q"
			var probe state.Probe
			c.probeAPIServer(t.Context(), "q", []*offloadingv1beta1.VirtualNode{vn}, &probe)
			require.False(t, probe.Answered)
			require.Equal(t, tc.want, probe.Reason)
			require.Equal(t, tc.want != "", probe.Alive)
			require.NotEmpty(t, probe.Problem)
			require.NotContains(t, probe.Problem, "html")
		})
	}
}
