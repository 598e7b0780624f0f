package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/packets"
)

// tunnelLink is the name of the WireGuard link in a gateway (TunnelInterfaceName in Liqo's pkg/gateway/tunnel).
const tunnelLink = "liqo-tunnel"

// gatewayPrefix is between the cluster's and the peer's name in the name of a gateway.
const gatewayPrefix = "/gw-"

const (
	// maxHops is more than the number of hops between any two pods.
	maxHops = 16
	// probes is the maximum number of probes for a hop. If the hop has discarded probesUnheard of them without an
	// answer, its answers do not arrive.
	probes, probesUnheard = 20, 3
	// probeTimeout is how long to wait for an answer, which normally takes some milliseconds.
	probeTimeout = 400 * time.Millisecond
)

// Hop is a network that forwards packets.
type Hop struct {
	// Name is the name of a HostNode or of a Gateway. It is empty for the last hop, which is the pod.
	Name string
	// Answer is the source address of the hop's answer, as the caller sees it. It is not valid if the hop's answer does
	// not arrive.
	Answer netip.Addr
	// Own is whether Answer is an address of the hop.
	Own bool
}

func (h Hop) String() string {
	switch {
	case h.Name == "":
		return fmt.Sprintf("the pod, from %s", h.Answer)
	case !h.Answer.IsValid():
		return h.Name + ", unheard"
	case h.Own:
		return fmt.Sprintf("%s, from its %s", h.Name, h.Answer)
	default:
		return fmt.Sprintf("%s, from %s", h.Name, h.Answer)
	}
}

// Trace sends probes with increasing TTLs from the network of a running pod to WebPort of an address, and returns the
// hops until the address answers. The kernel's counters in each network show which of them discarded a probe.
func (c *Cluster) Trace(ctx context.Context, namespace, pod, address string) (hops []Hop, err error) {
	from := c.agent.PodNetwork(namespace, pod)
	if from == nil {
		return nil, fmt.Errorf("pod %s/%s of %s has no network", namespace, pod, c.Name)
	}
	to, err := netip.ParseAddr(address)
	if err != nil {
		return nil, err
	}
	t := tracer{from: from, to: netip.AddrPortFrom(to, WebPort), networks: c.sandbox.forwarders()}
	for ttl := 1; ttl <= maxHops; ttl++ {
		hop, arrived, err := t.hop(ctx, ttl)
		if err != nil {
			return hops, err
		}
		hops = append(hops, hop)
		if arrived {
			return hops, nil
		}
	}
	return hops, fmt.Errorf("%s does not answer within %d hops", address, maxHops)
}

// tracer sends probes from a network to an address through the given networks.
type tracer struct {
	from     *packets.Namespace
	to       netip.AddrPort
	networks map[string]*packets.Namespace
}

// hop sends probes with one TTL until one is answered, or until a hop has discarded several of them without its answers
// arriving.
func (t *tracer) hop(ctx context.Context, ttl int) (hop Hop, arrived bool, err error) {
	unheard := 0
	for range probes {
		before, err := t.timeExceeded()
		if err != nil {
			return hop, false, err
		}
		answer, err := t.probe(ctx, ttl)
		if err != nil {
			return hop, false, err
		}
		if answer.Arrived {
			return Hop{Answer: answer.From}, true, nil
		}
		after, err := t.timeExceeded()
		if err != nil {
			return hop, false, err
		}
		if hop.Name = risen(before, after); hop.Name == "" {
			continue // The probe was lost, or the networks have changed.
		}
		hop.Answer = answer.From
		if hop.Answer.IsValid() {
			own, err := t.networks[hop.Name].Addresses()
			hop.Own = slices.Contains(own, hop.Answer)
			return hop, false, err
		}
		if unheard++; unheard == probesUnheard {
			return hop, false, nil
		}
	}
	return hop, false, fmt.Errorf("no network discards probes of %s with TTL %d", t.to, ttl)
}

func (t *tracer) probe(ctx context.Context, ttl int) (packets.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return t.from.Probe(ctx, t.to, ttl)
}

func (t *tracer) timeExceeded() (map[string]int, error) {
	counts := map[string]int{}
	for name, network := range t.networks {
		count, err := network.TimeExceeded()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		counts[name] = count
	}
	return counts, nil
}

// risen returns the name of a count that has increased, or "".
func risen(before, after map[string]int) string {
	for name, count := range after {
		if count > before[name] {
			return name
		}
	}
	return ""
}

// Gateway returns the name of a Hop: the gateway of a cluster to a peer.
func Gateway(cluster, peer string) string { return cluster + gatewayPrefix + peer }

// HostNode returns the name of a Hop: the host node of a cluster.
func HostNode(cluster string) string { return cluster + "/node" }

// TunnelPackets returns, by the name of the gateway's Hop, the number of packets that a gateway has received or sent
// through its tunnel, whichever is lower. It includes the packets with which gateways check their connections: one in
// two seconds, and its answer.
func (s *Sandbox) TunnelPackets() (map[string]int, error) {
	counts := map[string]int{}
	for name, network := range s.forwarders() {
		if !strings.Contains(name, gatewayPrefix) {
			continue
		}
		received, sent, err := network.LinkPackets(tunnelLink)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			continue // It has just been started.
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		counts[name] = int(min(received, sent))
	}
	return counts, nil
}

// forwarders returns the networks of all host nodes and gateways, by the names of their Hops.
func (s *Sandbox) forwarders() map[string]*packets.Namespace {
	networks := map[string]*packets.Namespace{}
	for _, c := range s.Clusters {
		networks[HostNode(c.Name)] = c.node.Namespace
		for pod, network := range c.agent.PodNetworks() {
			for _, peer := range s.Clusters {
				if pod.Namespace == tenantNamespace(peer.Name) && strings.HasPrefix(pod.Name, "gw-") {
					networks[Gateway(c.Name, peer.Name)] = network
				}
			}
		}
	}
	return networks
}
