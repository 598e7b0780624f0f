package packets

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// traced checks which hops on the path from a pod to an address discard packets because of their TTL. The first node
// appears with its own address. All other hops appear with the called address, because the gateway behind the first
// node translates it, and their answers with it. The answers of a gateway that discards a packet from its tunnel do not
// arrive: Liqo's routes into the tunnel are only for packets that the gateway forwards, so its own answers are sent
// into its own cluster.
func (f *federation) traced(t *testing.T, c *sandbox.Cluster, pod *corev1.Pod, address string, clusters ...*sandbox.Cluster) {
	t.Helper()
	called := netip.MustParseAddr(address)
	var want []sandbox.Hop
	for i, c := range clusters {
		if i > 0 {
			want = append(want, sandbox.Hop{Name: sandbox.Gateway(c.Name, clusters[i-1].Name)})
		}
		want = append(want, sandbox.Hop{Name: sandbox.HostNode(c.Name), Answer: called})
		if i < len(clusters)-1 {
			want = append(want, sandbox.Hop{Name: sandbox.Gateway(c.Name, clusters[i+1].Name), Answer: called})
		}
	}
	want = append(want, sandbox.Hop{Answer: called})
	eventually(t, patience, func(ctx context.Context) error { // On a busy machine an answer may be late.
		hops, err := c.Trace(ctx, pod.Namespace, pod.Name, address)
		if err != nil {
			return err
		}
		want[0].Answer, want[0].Own = hops[0].Answer, true
		if !slices.Equal(want, hops) {
			return fmt.Errorf("%v, want %v", hops, want)
		}
		return nil
	})
	t.Logf("from %s to %s: %v", pod.Status.PodIP, address, want)
}
