package sandbox

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/nodeagent"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/packets"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

// WebPort is the port of pods with ImageWeb.
const WebPort = 8080

// PacketsPossible returns nil if this process may start a sandbox with packets, else the reason.
func PacketsPossible() error { return packets.Possible() }

// preparePackets builds the programs of Liqo's data plane, and adds their images.
func (s *Sandbox) preparePackets(ctx context.Context) error {
	if err := packets.Possible(); err != nil {
		return err
	}
	geneve, err := packets.HasGeneve()
	if err != nil {
		return err
	}
	dir, err := binaries.EnsurePackets(ctx, geneve, s.say)
	if err != nil {
		return err
	}
	s.proxy = filepath.Join(dir, binaries.KubeProxy)
	add := func(image, binary string) {
		s.images[image] = nodeagent.Image{Binary: filepath.Join(dir, binary), Command: []string{"/usr/bin/" + binary}, InNetwork: true}
	}
	registry, tag := "ghcr.io/liqotech/", ":"+binaries.LiqoVersion
	add(registry+"fabric"+tag, binaries.LiqoFabric)
	add(registry+"gateway"+tag, binaries.LiqoGateway)
	add(registry+"gateway/wireguard"+tag, binaries.LiqoWireGuard)
	add(registry+"gateway/geneve"+tag, binaries.LiqoGeneve)
	add(ImageWeb, binaries.Web)
	return nil
}

// layNetwork creates the networks of the host nodes.
func (s *Sandbox) layNetwork() (err error) {
	if !s.opts.Packets && !s.opts.Containers {
		return nil
	}
	if s.internet, err = packets.New(); err != nil {
		return err
	}
	for _, c := range s.Clusters {
		node, err := s.internet.AddNode(c.index)
		if err != nil {
			return err
		}
		if s.opts.Containers {
			c.machineNetwork = node
			continue
		}
		c.node = node
		if err := c.node.CountForwarded(WebPort); err != nil {
			return err
		}
	}
	return nil
}

// runProxy runs kube-proxy on a node. It reaches the API server on the node's loopback.
func (c *Cluster) runProxy(ctx context.Context, network *packets.Node, node string) error {
	s := c.sandbox
	if err := network.ForwardLoopback(c.plane.APIPort()); err != nil {
		return err
	}
	proxy, err := s.group.Start(proc.Spec{
		Name: c.Name + "/kube-proxy", Path: s.proxy, Network: network.FD(), Private: true,
		Args: []string{
			"--kubeconfig=" + c.plane.Kubeconfig(), "--hostname-override=" + node, "--proxy-mode=nftables",
			"--cluster-cidr=" + podCIDR, "--detect-local-mode=ClusterCIDR", "--healthz-bind-address=127.0.0.1:10256",
			// These limits are of the machine, not of a namespace.
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
		},
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "TMPDIR=" + c.dir()},
		Log: c.dir("logs", "kube-proxy.log"),
	})
	if err != nil {
		return err
	}
	c.proxy = proxy
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DialContext: network.DialContext, DisableKeepAlives: true}}
	return proxy.WaitFor(ctx, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10256/livez", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("kube-proxy: %s", resp.Status)
		}
		return nil
	})
}

// PodClient returns a client that sends HTTP requests as a running pod of the cluster does: from its network, with one
// connection for each. A closed connection sends no more packets, so that aborted requests are not counted later
// (Forwarded).
func (c *Cluster) PodClient(namespace, pod string) (*http.Client, error) {
	network := c.agent.PodNetwork(namespace, pod)
	if network == nil {
		return nil, fmt.Errorf("pod %s/%s of %s has no network", namespace, pod, c.Name)
	}
	dial := func(ctx context.Context, protocol, address string) (net.Conn, error) {
		conn, err := network.DialContext(ctx, protocol, address)
		if err != nil {
			return nil, err
		}
		return conn, conn.(*net.TCPConn).SetLinger(0)
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}, nil
}

// Forwarded returns how many packets to WebPort the host node has forwarded. It forwards all packets of requests to
// other clusters: they come from a pod, from a gateway, or from both.
func (c *Cluster) Forwarded() (int, error) { return c.node.Forwarded(WebPort) }
