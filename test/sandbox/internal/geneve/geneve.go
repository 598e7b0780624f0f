// Package geneve replaces Liqo's package of that name (pkg/utils/network/geneve) in the sandbox's build of gateway and
// fabric if the kernel has no Geneve device. Its links are VXLAN: the same names, identifiers, addresses and UDP port,
// but another header. binaries.EnsurePackets puts this file into a copy of Liqo's source.
package geneve

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// EnsureGeneveInterfacePresence creates the link, or replaces it if it has another destination, and sets its address.
func EnsureGeneveInterfacePresence(interfaceName, localIP, remoteIP string, id uint32, disableARP bool, mtu int, port uint16) error {
	local, remote := net.ParseIP(localIP), net.ParseIP(remoteIP)
	if local == nil || remote == nil {
		return fmt.Errorf("link %s: %q or %q is no address", interfaceName, localIP, remoteIP)
	}
	want := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: interfaceName, TxQLen: 1000, MTU: mtu},
		VxlanId:   int(id), Group: remote, Port: int(port),
	}
	link, err := ensureLink(want)
	if err != nil {
		return fmt.Errorf("link %s: %w", interfaceName, err)
	}
	if disableARP {
		if err := netlink.LinkSetARPOff(link); err != nil {
			return fmt.Errorf("link %s without ARP: %w", interfaceName, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("link %s up: %w", interfaceName, err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: local, Mask: net.CIDRMask(32, 32)}}
	if err := netlink.AddrReplace(link, address); err != nil {
		return fmt.Errorf("address %s of link %s: %w", localIP, interfaceName, err)
	}
	return nil
}

func ensureLink(want *netlink.Vxlan) (netlink.Link, error) {
	link, err := linkByName(want.Name)
	if err != nil {
		return nil, err
	}
	if is, ok := link.(*netlink.Vxlan); ok {
		if is.VxlanId == want.VxlanId && is.Group.Equal(want.Group) && is.Port == want.Port && is.MTU == want.MTU {
			return is, nil
		}
		if err := netlink.LinkDel(is); err != nil {
			return nil, err
		}
	}
	return want, netlink.LinkAdd(want)
}

// linkByName returns nil if the link does not exist.
func linkByName(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, nil
	}
	return link, err
}

// EnsureGeneveInterfaceAbsence removes the link, if it exists.
func EnsureGeneveInterfaceAbsence(interfaceName string) error {
	link, err := linkByName(interfaceName)
	if err != nil || link == nil {
		return err
	}
	return netlink.LinkDel(link)
}

// ListGeneveInterfaces returns the links of this kind.
func ListGeneveInterfaces() ([]netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var found []netlink.Link
	for _, link := range links {
		if link.Type() == "vxlan" {
			found = append(found, link)
		}
	}
	return found, nil
}
