package packets

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
)

// nft applies nft rules in the namespace.
func (n *Namespace) nft(rules string) error {
	return n.Do(func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rules)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w\n%s", err, out)
		}
		return nil
	})
}

// CountForwarded begins to count the TCP packets to a port that the node forwards: from pods, to pods, and between
// gateways.
func (n *Node) CountForwarded(port int) error {
	return n.nft(fmt.Sprintf(`table ip sandbox {
	counter port%[1]d { }
	chain forward {
		type filter hook forward priority filter - 10
		tcp dport %[1]d counter name port%[1]d
	}
}`, port))
}

// Forwarded returns how many packets CountForwarded has counted.
func (n *Node) Forwarded(port int) (packets int, err error) {
	err = n.Do(func() error {
		out, err := exec.Command("nft", "-j", "list", "counter", "ip", "sandbox", fmt.Sprintf("port%d", port)).Output()
		if err != nil {
			return fmt.Errorf("nft list counter: %w", err)
		}
		var list struct {
			Nftables []struct {
				Counter struct{ Packets int }
			}
		}
		if err := json.Unmarshal(out, &list); err != nil {
			return fmt.Errorf("nft list counter: %w", err)
		}
		for _, object := range list.Nftables {
			packets += object.Counter.Packets
		}
		return nil
	})
	return packets, err
}

// SetLink delivers packets between two nodes, or drops them without an answer.
func SetLink(a, b *Node, up bool) error {
	return errors.Join(a.reach(b, up), b.reach(a, up))
}

func (n *Node) reach(other *Node, up bool) error {
	route := &netlink.Route{Dst: ipNet(host(other.Address)), Type: syscall.RTN_BLACKHOLE}
	if up {
		if err := n.links.RouteDel(route); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("node %s to %s: %w", n.Address, other.Address, err)
		}
		return nil
	}
	if err := n.links.RouteReplace(route); err != nil {
		return fmt.Errorf("node %s to %s: %w", n.Address, other.Address, err)
	}
	return nil
}
