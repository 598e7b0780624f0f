package broker

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// TestNoProviderWaitsForAnother: one provider hangs, one answers, one refuses; each is reported in its own time, and
// nothing goes on after the end.
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
	}))
	defer answering.Close()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError) // As /readyz does without etcd.
	}))
	defer broken.Close()

	home := fake.NewClientset(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "answering-1"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("vk"), LeaseDurationSeconds: ptr.To(int32(15)), RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	})
	connected := newConnections(home, nil, time.Second, "")
	for name, server := range map[string]*httptest.Server{"hanging-1": hanging, "answering-1": answering, "broken-1": broken} {
		kube, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, Transport: &http.Transport{DisableKeepAlives: true}})
		require.NoError(t, err)
		connected.byVirtualNode[name] = &connection{virtualNode: name, kube: kube}
	}
	type seen struct {
		id string
		o  observation
	}
	reports := make(chan seen, 100)
	p := newProber(home, connected, Times{ProbeInterval: 20 * time.Millisecond, ProbeTimeout: 2 * time.Second},
		func(id string, o observation) {
			select {
			case reports <- seen{id, o}:
			default:
			}
		})
	for _, id := range []string{"hanging", "answering", "broken", "unconnected"} {
		p.watch(target{id: id, virtualNodes: map[string]string{id + "-1": "tenant"}})
	}
	count, last := map[string]int{}, map[string]observation{}
	for count["hanging"] == 0 {
		select {
		case r := <-reports:
			count[r.id]++
			last[r.id] = r.o
		case <-time.After(10 * time.Second):
			t.Fatal("the hanging provider was never reported")
		}
	}
	require.Greater(t, count["answering"], 1, "others were probed meanwhile")
	require.True(t, last["answering"].up)
	require.True(t, last["answering"].kubelets["answering-1"])
	require.Positive(t, last["answering"].took)
	require.Equal(t, "no answer within 2s", last["hanging"].problem)
	require.False(t, last["broken"].up)
	require.Equal(t, map[string]bool{"broken-1": false}, last["broken"].kubelets, "there is no lease")
	require.Equal(t, "no kubeconfig", last["unconnected"].problem)

	p.forget("broken")
	p.stopAll()
	p.watch(target{id: "late"})
	require.Empty(t, p.running)
}
