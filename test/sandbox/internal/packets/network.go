package packets

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Network is the internet between the clusters.
type Network struct {
	internet *Namespace
	bridge   netlink.Link
	nodes    []*Node
}

// Possible returns nil if this process may create networks, else the reason.
func Possible() error {
	if _, err := exec.LookPath("nft"); err != nil {
		return fmt.Errorf("packets need the program nft: %w", err)
	}
	if err := unix.Access("/dev/net/tun", unix.R_OK|unix.W_OK); err != nil {
		return fmt.Errorf("packets need /dev/net/tun: %w", err)
	}
	ns, err := newNamespace()
	if err != nil {
		return fmt.Errorf("packets need root: %w", err)
	}
	return ns.Close()
}

// HasGeneve reports whether the kernel has Geneve devices.
func HasGeneve() (bool, error) {
	ns, err := newNamespace()
	if err != nil {
		return false, err
	}
	link := &netlink.Geneve{LinkAttrs: netlink.LinkAttrs{Name: "probe"}, ID: 1, Remote: net.IPv4(127, 0, 0, 1)}
	err = ns.links.LinkAdd(link)
	return err == nil, ns.Close()
}

// New creates an internet without nodes.
func New() (*Network, error) {
	internet, err := newNamespace()
	if err != nil {
		return nil, err
	}
	n := &Network{internet: internet, bridge: &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "internet"}}}
	if err := internet.links.LinkAdd(n.bridge); err != nil {
		return nil, errors.Join(fmt.Errorf("bridge: %w", err), internet.Close())
	}
	return n, internet.links.LinkSetUp(n.bridge)
}

// Close releases the namespaces of the internet and of the nodes.
func (n *Network) Close() error {
	errs := []error{n.internet.Close()}
	for _, node := range n.nodes {
		errs = append(errs, node.Close())
	}
	return errors.Join(errs...)
}

// Node is the host node of a cluster.
type Node struct {
	*Namespace
	// Address is the node's address in the internet.
	Address netip.Addr

	index int
	mu    sync.Mutex
	// pods are the last octets of the addresses in use.
	pods map[int]bool
}

// Addresses of a node: its pods have 10.244.INDEX.2 to 10.244.INDEX.254, and reach the node at 10.244.INDEX.1.
const (
	firstPod = 2
	lastPod  = 254
)

func (n *Node) podAddress(number int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 244, byte(n.index), byte(number)})
}

func (n *Node) gateway() netip.Addr { return n.podAddress(1) }

// AddNode creates the host node of the cluster with that index, from 1 to 254.
func (n *Network) AddNode(index int) (*Node, error) {
	ns, err := newNamespace()
	if err != nil {
		return nil, err
	}
	node := &Node{
		Namespace: ns, index: index, pods: map[int]bool{},
		Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(index)}),
	}
	if err := n.attach(node); err != nil {
		return nil, errors.Join(fmt.Errorf("node %s: %w", node.Address, err), ns.Close())
	}
	n.nodes = append(n.nodes, node)
	return node, nil
}

func (n *Network) attach(node *Node) error {
	name := fmt.Sprintf("node%d", node.index)
	if err := addPair(n.internet, name, node.Namespace, "eth0"); err != nil {
		return err
	}
	outside, err := n.internet.links.LinkByName(name)
	if err != nil {
		return err
	}
	if err := n.internet.links.LinkSetMaster(outside, n.bridge); err != nil {
		return err
	}
	if err := node.configure("eth0", netip.PrefixFrom(node.Address, 24)); err != nil {
		return err
	}
	eth0, err := node.links.LinkByName("eth0")
	if err != nil {
		return err
	}
	// No host answers there. But the node itself uses addresses of Services, and packets without a route are never
	// translated.
	if err := node.links.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: net.IPv4(192, 0, 2, 254)}); err != nil {
		return err
	}
	for _, path := range []string{"ip_forward", "conf/all/forwarding"} {
		if err := node.sysctl(path, "1"); err != nil {
			return err
		}
	}
	for _, path := range []string{"conf/all/rp_filter", "conf/default/rp_filter"} {
		// Loose, the default of distributions: replies may use another path.
		if err := node.sysctl(path, "2"); err != nil {
			return err
		}
	}
	return node.nft(fmt.Sprintf(`table ip sandbox {
	chain postrouting {
		type nat hook postrouting priority srcnat + 10
		ip saddr 10.244.%d.0/24 oifname "eth0" masquerade
	}
}`, node.index))
}

// addPair creates a veth pair between two namespaces, up at both ends.
func addPair(a *Namespace, nameA string, b *Namespace, nameB string) error {
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: nameA}, PeerName: nameB, PeerNamespace: netlink.NsFd(b.FD()),
	}
	if err := a.links.LinkAdd(pair); err != nil {
		return fmt.Errorf("veth %s: %w", nameA, err)
	}
	for ns, name := range map[*Namespace]string{a: nameA, b: nameB} {
		link, err := ns.links.LinkByName(name)
		if err != nil {
			return err
		}
		if err := ns.links.LinkSetUp(link); err != nil {
			return fmt.Errorf("%s up: %w", name, err)
		}
	}
	return nil
}

// configure sets the address of a link.
func (n *Namespace) configure(name string, prefix netip.Prefix) error {
	link, err := n.links.LinkByName(name)
	if err != nil {
		return err
	}
	if err := n.links.AddrAdd(link, &netlink.Addr{IPNet: ipNet(prefix)}); err != nil {
		return fmt.Errorf("address %s of %s: %w", prefix, name, err)
	}
	return nil
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

func host(address netip.Addr) netip.Prefix { return netip.PrefixFrom(address, address.BitLen()) }

func (n *Namespace) sysctl(path, value string) error {
	return n.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/"+path, []byte(value), 0) })
}

// Pod is the network of a pod.
type Pod struct {
	*Namespace
	Address netip.Addr

	node   *Node
	number int
}

// AddPod creates the network of a pod, with the lowest free address.
func (n *Node) AddPod() (*Pod, error) {
	number, err := n.reserve()
	if err != nil {
		return nil, err
	}
	ns, err := newNamespace()
	if err != nil {
		n.release(number)
		return nil, err
	}
	pod := &Pod{Namespace: ns, Address: n.podAddress(number), node: n, number: number}
	if err := pod.attach(); err != nil {
		return nil, errors.Join(fmt.Errorf("pod %s: %w", pod.Address, err), pod.Close())
	}
	return pod, nil
}

func (n *Node) reserve() (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for number := firstPod; number <= lastPod; number++ {
		if !n.pods[number] {
			n.pods[number] = true
			return number, nil
		}
	}
	return 0, fmt.Errorf("node %s has no free address for a pod", n.Address)
}

func (n *Node) release(number int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods, number)
}

func (p *Pod) attach() error {
	name := fmt.Sprintf("veth%d", p.number)
	if err := addPair(p.node.Namespace, name, p.Namespace, "eth0"); err != nil {
		return err
	}
	if err := p.node.configure(name, host(p.node.gateway())); err != nil {
		return err
	}
	outside, err := p.node.links.LinkByName(name)
	if err != nil {
		return err
	}
	toPod := &netlink.Route{LinkIndex: outside.Attrs().Index, Dst: ipNet(host(p.Address)), Scope: netlink.SCOPE_LINK}
	if err := p.node.links.RouteAdd(toPod); err != nil {
		return fmt.Errorf("route to the pod: %w", err)
	}
	if err := p.configure("eth0", host(p.Address)); err != nil {
		return err
	}
	eth0, err := p.links.LinkByName("eth0")
	if err != nil {
		return err
	}
	gateway := p.node.gateway()
	for _, route := range []*netlink.Route{
		{LinkIndex: eth0.Attrs().Index, Dst: ipNet(host(gateway)), Scope: netlink.SCOPE_LINK},
		{LinkIndex: eth0.Attrs().Index, Gw: gateway.AsSlice()},
	} {
		if err := p.links.RouteAdd(route); err != nil {
			return fmt.Errorf("route of the pod: %w", err)
		}
	}
	return nil
}

// Close removes the pod's links and releases its address.
func (p *Pod) Close() error {
	// A process that has not ended yet would keep the links, and therefore the route to the address.
	if link, err := p.node.links.LinkByName(fmt.Sprintf("veth%d", p.number)); err == nil {
		_ = p.node.links.LinkDel(link)
	}
	p.node.release(p.number)
	return p.Namespace.Close()
}
