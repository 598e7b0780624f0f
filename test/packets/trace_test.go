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

// traced has each hop on the way through clusters, from a pod to an address, discard packets, by their TTL, and compares who says
// so. The first node has its own address. The others are seen under the called one: the gateway behind the first node
// translates it, and with it the answers. A gateway that discards what comes out of its tunnel is not heard:
// Liqo's routes into the tunnel are for packets that the gateway forwards, so its own answer goes into its own cluster.
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
	eventually(t, patience, func(ctx context.Context) error { // On a busy machine an answer may come too late.
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
