package isolation

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"

	"github.com/liqotech/liqo/apis/networking/v1beta1/firewall"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// Names of the tables of a gateway, and of their chains.
const (
	tableName = "liqo-broker-isolation"
	ownChain  = "own"
	restChain = "rest"
	endChain  = "forward"
)

const (
	// tunnelInterface is the interface of the tunnel in a gateway (TunnelInterfaceName in Liqo's pkg/gateway/tunnel).
	tunnelInterface = "liqo-tunnel"
	// linkLocal has the addresses of both ends of a tunnel, where gateways check their connection. The chain forward lets
	// nothing of it pass.
	linkLocal = "169.254.0.0/16"
	// discarded replaces the destination of a connection that a consumer may not open. It is reserved for documentation
	// (RFC 5737), so nothing is there.
	discarded = "192.0.2.1"
)

// gatewayOf has the labels by which the gateway of a cluster finds its FirewallConfigurations (ForgeFirewallTargetLabels in Liqo's
// pkg/liqo-controller-manager/networking/external-network/remapping).
func gatewayOf(cluster string) labels.Set {
	return labels.Set{"networking.liqo.io/firewall-category": "gateway", "networking.liqo.io/firewall-unique": cluster}
}

// Liqo's gateways send all new rules of an object to the kernel in one message, which holds the rules of some 380 addresses
// (FirewallWrapper in Liqo's pkg/firewall; net.core.wmem_default). Beyond that none of them is applied. So addresses are
// divided among several objects, and what denies is in one that is small whatever a consumer has.
const (
	// shares is how many objects have addresses, shareRange how many neighbouring addresses are in one: Liqo gives them out
	// in order. So 1,024 pods take 32 rules in each.
	shares, shareRange = 32, 32
	// maxShare is how many addresses of an object can be reached.
	maxShare = 300
)

// target is an address that a consumer may connect to, and where it leads: for an address of the external CIDR to what Liqo
// mapped, else to itself.
type target struct{ address, leadsTo netip.Addr }

// share returns which object has an address.
func share(address netip.Addr) int {
	four := address.As4()
	return int(binary.BigEndian.Uint32(four[:]) / shareRange % shares)
}

// divide sorts targets by the objects that have them, one of each address. It returns how many are over the limit.
func divide(targets []target) (divided [shares][]target, cut int) {
	slices.SortFunc(targets, func(a, b target) int {
		return cmp.Or(a.address.Compare(b.address), a.leadsTo.Compare(b.leadsTo))
	})
	for _, t := range slices.CompactFunc(targets, func(a, b target) bool { return a.address == b.address }) {
		if of := &divided[share(t.address)]; len(*of) < maxShare {
			*of = append(*of, t)
		} else {
			cut++
		}
	}
	return divided, cut
}

// nameOfShare is the name of the object with a share of the addresses, and of its table.
func nameOfShare(n int) string { return tableName + "-" + strconv.Itoa(n) }

// The gateway of a consumer has these tables. Liqo's rules know no state of a connection. But only the first packet of a connection
// goes through chains of the type nat. So they decide which connections the consumer may open, and answers to connections
// that were opened from here pass. Liqo appends new rules at the end of a chain and keeps the others, so no chain depends
// on the order of its rules.
//
//  1. own, in the tables with the shares of the addresses, translates them as Liqo's own rules would. After a translation the
//     kernel asks no further chain.
//  2. rest, before Liqo's chains, sends all else that the consumer opens to an address without a host.
//  3. forward drops that, and all packets to other ranges than those of pods. Answers go to the ranges of this cluster,
//     from which its pods and, translated by Liqo, those of other clusters call.
//
// A table that denies has rest and forward. ranges are those that forward lets pass.
func denyTable(ranges []netip.Prefix) firewall.Table {
	return firewall.Table{
		Name: ptr.To(tableName), Family: ptr.To(firewall.TableFamilyIPv4),
		Chains: []firewall.Chain{
			natChain(restChain, firewall.ChainPriorityNATDest-1, []firewall.NatRule{{
				Name: ptr.To("rest"), NatType: firewall.NatTypeDestination, To: ptr.To(discarded),
				Match: []firewall.Match{
					fromConsumer(firewall.MatchOperationEq), to(firewall.MatchOperationNeq, linkLocal),
				},
			}}),
			{
				Name: ptr.To(endChain), Type: firewall.ChainTypeFilter, Policy: ptr.To(firewall.ChainPolicyDrop),
				Hook: &firewall.ChainHookForward, Priority: ptr.To(firewall.ChainPriorityFilter),
				Rules: firewall.RulesSet{FilterRules: forwardRules(ranges)},
			},
		},
	}
}

// ownTable has a share of the addresses.
func ownTable(name string, targets []target) firewall.Table {
	if len(targets) == 0 {
		return openTable(name)
	}
	return firewall.Table{
		Name: &name, Family: ptr.To(firewall.TableFamilyIPv4),
		Chains: []firewall.Chain{natChain(ownChain, firewall.ChainPriorityNATDest-2, ownRules(targets))},
	}
}

// openTable has no rule. Gateways keep the rules of an object that is deleted.
func openTable(name string) firewall.Table {
	return firewall.Table{Name: &name, Family: ptr.To(firewall.TableFamilyIPv4), Chains: []firewall.Chain{}}
}

func natChain(name string, priority firewall.ChainPriority, rules []firewall.NatRule) firewall.Chain {
	return firewall.Chain{
		Name: &name, Type: firewall.ChainTypeNAT, Policy: ptr.To(firewall.ChainPolicyAccept),
		Hook: &firewall.ChainHookPrerouting, Priority: &priority, Rules: firewall.RulesSet{NatRules: rules},
	}
}

func ownRules(targets []target) []firewall.NatRule {
	rules := make([]firewall.NatRule, 0, len(targets))
	for _, t := range targets {
		rules = append(rules, firewall.NatRule{
			Name: ptr.To(t.address.String()), NatType: firewall.NatTypeDestination, To: ptr.To(t.leadsTo.String()),
			Match: []firewall.Match{
				fromConsumer(firewall.MatchOperationEq), to(firewall.MatchOperationEq, t.address.String()),
			},
		})
	}
	return rules
}

func forwardRules(ranges []netip.Prefix) []firewall.FilterRule {
	rules := []firewall.FilterRule{accept("to-the-consumer", fromConsumer(firewall.MatchOperationNeq))}
	for _, prefix := range ranges {
		rules = append(rules, accept(prefix.String(), to(firewall.MatchOperationEq, prefix.String())))
	}
	return rules
}

func accept(name string, match firewall.Match) firewall.FilterRule {
	return firewall.FilterRule{Name: &name, Action: firewall.ActionAccept, Match: []firewall.Match{match}}
}

// fromConsumer matches, or with the operation neq does not match, what comes out of the tunnel.
func fromConsumer(op firewall.MatchOperation) firewall.Match {
	return firewall.Match{Op: op, Dev: &firewall.MatchDev{Value: tunnelInterface, Position: firewall.MatchDevPositionIn}}
}

func to(op firewall.MatchOperation, value string) firewall.Match {
	return firewall.Match{Op: op, IP: &firewall.MatchIP{Value: value, Position: firewall.MatchPositionDst}}
}
