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

// The names of the tables of a gateway, and of their chains.
const (
	tableName = "liqo-broker-isolation"
	ownChain  = "own"
	restChain = "rest"
	endChain  = "forward"
)

const (
	// tunnelInterface is the interface of the tunnel in a gateway (TunnelInterfaceName in Liqo's pkg/gateway/tunnel).
	tunnelInterface = "liqo-tunnel"
	// linkLocal has the addresses of both ends of a tunnel, with which gateways check their connection. The chain
	// forward drops all of this traffic.
	linkLocal = "169.254.0.0/16"
	// discarded replaces the destination of a connection that a consumer may not open. It is reserved for documentation
	// (RFC 5737), so no host has it.
	discarded = "192.0.2.1"
)

// gatewayOf has the labels with which the gateway of a cluster selects its FirewallConfigurations
// (ForgeFirewallTargetLabels in Liqo's pkg/liqo-controller-manager/networking/external-network/remapping).
func gatewayOf(cluster string) labels.Set {
	return labels.Set{"networking.liqo.io/firewall-category": "gateway", "networking.liqo.io/firewall-unique": cluster}
}

// Liqo's gateways send all new rules of an object to the kernel in one message, which has space for the rules of some
// 380 addresses (FirewallWrapper in Liqo's pkg/firewall; net.core.wmem_default). With more, no rule is applied. So the
// addresses are divided among several objects. The denying rules are in an object that stays small regardless of the
// consumer's addresses.
const (
	// shares is the number of objects with addresses, shareRange the number of neighbouring addresses in one object.
	// Liqo assigns addresses in order, so 1,024 pods take 32 rules in each object.
	shares, shareRange = 32, 32
	// maxShare is the maximum number of reachable addresses in one object.
	maxShare = 300
)

// target is an address that a consumer may connect to, and its destination: for an address of the external CIDR the
// address that Liqo mapped, otherwise the address itself.
type target struct{ address, leadsTo netip.Addr }

// share returns the number of the object that has an address.
func share(address netip.Addr) int {
	four := address.As4()
	return int(binary.BigEndian.Uint32(four[:]) / shareRange % shares)
}

// divide assigns targets to their objects, at most one target for each address. cut is the number of targets that
// exceed the limit.
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

// nameOfShare returns the name of the object with a share of the addresses, which is also the name of its table.
func nameOfShare(n int) string { return tableName + "-" + strconv.Itoa(n) }

// The gateway of a consumer has these tables. Liqo's rules cannot match the state of a connection. But only the first
// packet of a connection passes through chains of the type nat. So these chains decide which connections the consumer
// may open, and answers to connections that were opened from here pass. Liqo appends new rules at the end of a chain
// and keeps the others, so no chain depends on the order of its rules.
//
//  1. own, in the tables with the shares of the addresses, translates them as Liqo's own rules would. After a
//     translation the kernel evaluates no further nat chain.
//  2. rest, before Liqo's chains, sends all other connections that the consumer opens to an address without a host.
//  3. forward drops these, and all packets to other ranges than pods'. Answers go to the ranges of this cluster, from
//     which its own pods call and, translated by Liqo, the pods of other clusters.
//
// A denying table has rest and forward. ranges are the destinations that forward accepts.
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

// ownTable returns the table with a share of the addresses.
func ownTable(name string, targets []target) firewall.Table {
	if len(targets) == 0 {
		return openTable(name)
	}
	return firewall.Table{
		Name: &name, Family: ptr.To(firewall.TableFamilyIPv4),
		Chains: []firewall.Chain{natChain(ownChain, firewall.ChainPriorityNATDest-2, ownRules(targets))},
	}
}

// openTable has no rule. It is needed because gateways keep the rules of an object that is deleted.
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

// fromConsumer matches packets that come out of the tunnel, or with the operation neq all other packets.
func fromConsumer(op firewall.MatchOperation) firewall.Match {
	return firewall.Match{Op: op, Dev: &firewall.MatchDev{Value: tunnelInterface, Position: firewall.MatchDevPositionIn}}
}

func to(op firewall.MatchOperation, value string) firewall.Match {
	return firewall.Match{Op: op, IP: &firewall.MatchIP{Value: value, Position: firewall.MatchPositionDst}}
}
