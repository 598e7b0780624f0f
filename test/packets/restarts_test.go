package packets

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// calm is how long all requests must be answered after a restart.
const calm = 5 * time.Second

// restart is a component that is restarted under traffic.
type restart struct {
	what string
	do   func(*testing.T)
	// limit is how long requests may fail.
	limit time.Duration
}

// restarts sends requests to a pod at the provider that the consumer has no network with, while components between them
// are restarted.
func (f *federation) restarts(t *testing.T) {
	wholeOnly(t)
	far := f.providers[1]
	ns := f.namespace(t, f.consumer, "restarts")
	asker, pod := local(f.consumer, ns, "asker"), at(ns, "away", far)
	f.run(t, f.consumer, asker)
	f.run(t, f.consumer, pod)
	from := clientOf(t, f.consumer, asker)
	f.called(t, from, pod)

	component := func(name string) func(*testing.T) {
		return func(t *testing.T) { require.NoError(t, f.Restart(t.Context(), name)) }
	}
	gateway := func(c, peer *sandbox.Cluster) func(*testing.T) {
		return func(t *testing.T) { deletePod(t, c, "liqo-tenant-"+peer.Name, "gw-"+peer.Name) }
	}
	// aside is for components that are not in the path of packets: on an idle machine no request fails.
	const aside, inThePath = 3 * time.Second, 60 * time.Second
	for _, r := range []restart{
		{"the broker", component("broker/liqo-broker"), aside},
		{"the virtual kubelet of the consumer", component("consumer1/vk-broker"), aside},
		{"the virtual kubelet of the provider, in the broker's cluster", component("broker/vk-provider2"), aside},
		{"Liqo's controller manager in the broker's cluster", component("broker/liqo-controller-manager"), aside},
		{"Liqo's IPAM in the broker's cluster", component("broker/liqo-ipam"), aside},
		{
			"Liqo's fabric on the node of the broker's cluster", func(t *testing.T) { deletePod(t, f.broker, "liqo", "liqo-fabric") },
			inThePath,
		},
		{"the gateway of the broker's cluster to the consumer", gateway(f.broker, f.consumer), inThePath},
		{"the gateway of the broker's cluster to the provider", gateway(f.broker, far), inThePath},
		{"the gateway of the consumer", gateway(f.consumer, f.broker), inThePath},
		{"the gateway of the provider", gateway(far, f.broker), inThePath},
	} {
		t.Run(r.what, func(t *testing.T) {
			traffic := startTraffic(t, from, endpoint(pod.Status.PodIP))
			r.do(t)
			awaitCalm(t, from, endpoint(pod.Status.PodIP))
			attempts := traffic()
			failed, first, last := outage(attempts)
			t.Logf("%s: %d of %d requests failed, within %s", r.what, failed, len(attempts), last.Sub(first).Round(10*time.Millisecond))
			assert.Less(t, last.Sub(first), r.limit)
		})
	}
}

// awaitCalm waits until an address has answered all requests for a while.
func awaitCalm(t *testing.T, from *http.Client, address string) {
	t.Helper()
	var since time.Time
	eventually(t, patience, func(ctx context.Context) error {
		if _, err := ask(ctx, from, address); err != nil {
			since = time.Time{}
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if answers := time.Since(since); answers < calm {
			return fmt.Errorf("it answers again for %s", answers)
		}
		return nil
	})
}

// deletePod deletes the pods with this name prefix, and waits until their replacements are Ready: these have new
// networks.
func deletePod(t *testing.T, c *sandbox.Cluster, namespace, prefix string) {
	t.Helper()
	pods := func(ctx context.Context) (found []corev1.Pod, err error) {
		var list corev1.PodList
		err = c.Client.List(ctx, &list, client.InNamespace(namespace))
		for _, pod := range list.Items {
			if strings.HasPrefix(pod.Name, prefix) {
				found = append(found, pod)
			}
		}
		return found, err
	}
	before, err := pods(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, before)
	old := map[string]bool{}
	for i := range before {
		old[before[i].Name] = true
		require.NoError(t, c.Client.Delete(t.Context(), &before[i]))
	}
	eventually(t, patience, func(ctx context.Context) error {
		now, err := pods(ctx)
		if err != nil {
			return err
		}
		for i := range now {
			if !old[now[i].Name] && podutil.IsPodReady(&now[i]) {
				return nil
			}
		}
		return fmt.Errorf("no other pod %s-… is Ready", prefix)
	})
}
