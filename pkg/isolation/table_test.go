package isolation

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/liqotech/liqo/apis/networking/v1beta1/firewall"
)

func targetOf(address, leadsTo string) target {
	return target{address: netip.MustParseAddr(address), leadsTo: netip.MustParseAddr(leadsTo)}
}

// packet is the first packet of a connection, or a later one.
type packet struct {
	in, to string
	first  bool
}

// gateway applies tables as the kernel does: the NAT chains to the first packet of a connection, until one translates
// it, then the chain of the hook forward. It returns the destination of the packet; "" if it is dropped.
func gateway(t *testing.T, tables []firewall.Table, p packet) string {
	t.Helper()
	chains := chainsOf(tables)
	if p.first {
		p.to = translated(t, chains, p)
	}
	for _, c := range chains {
		if c.Type != firewall.ChainTypeFilter {
			continue
		}
		require.Equal(t, firewall.ChainHookForward, *c.Hook)
		if !slices.ContainsFunc(c.Rules.FilterRules, func(r firewall.FilterRule) bool {
			return r.Action == firewall.ActionAccept && matches(t, r.Match, p)
		}) && *c.Policy == firewall.ChainPolicyDrop {
			return ""
		}
	}
	return p.to
}

// chainsOf returns the chains of all tables in the order in which the kernel evaluates them.
func chainsOf(tables []firewall.Table) (chains []firewall.Chain) {
	for _, table := range tables {
		chains = append(chains, table.Chains...)
	}
	slices.SortStableFunc(chains, func(a, b firewall.Chain) int { return int(*a.Priority) - int(*b.Priority) })
	return chains
}

func translated(t *testing.T, chains []firewall.Chain, p packet) string {
	t.Helper()
	for _, c := range chains {
		if c.Type != firewall.ChainTypeNAT {
			continue
		}
		require.Equal(t, firewall.ChainHookPrerouting, *c.Hook)
		require.Less(t, *c.Priority, firewall.ChainPriorityNATDest, "before Liqo's")
		for _, r := range c.Rules.NatRules {
			if matches(t, r.Match, p) {
				return *r.To
			}
		}
	}
	return p.to
}

func matches(t *testing.T, all []firewall.Match, p packet) bool {
	t.Helper()
	for _, m := range all {
		var equal bool
		switch {
		case m.Dev != nil:
			require.Equal(t, firewall.MatchDevPositionIn, m.Dev.Position)
			equal = m.Dev.Value == p.in
		case m.IP != nil:
			require.Equal(t, firewall.MatchPositionDst, m.IP.Position)
			prefix, err := netip.ParsePrefix(m.IP.Value)
			if err != nil {
				prefix = netip.PrefixFrom(netip.MustParseAddr(m.IP.Value), 32)
			}
			require.Equal(t, prefix.Masked(), prefix, "the kernel compares the masked address with this one")
			equal = prefix.Contains(netip.MustParseAddr(p.to))
		default:
			require.Fail(t, "a match of nothing")
		}
		if equal != (m.Op == firewall.MatchOperationEq) {
			return false
		}
	}
	return true
}

func TestTheGatewayOfAConsumer(t *testing.T) {
	isolated := []firewall.Table{denyTable([]netip.Prefix{
		netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("10.70.0.0/16"), netip.MustParsePrefix("10.65.0.0/16"),
	})}
	for _, own := range []target{targetOf("10.70.0.6", "10.65.3.5"), targetOf("10.244.2.9", "10.244.2.9")} {
		isolated = append(isolated, ownTable(nameOfShare(share(own.address)), []target{own}))
	}
	const tunnel, inside = "liqo-tunnel", "liqo.abc"
	for name, tc := range map[string]struct {
		packet
		goes string
	}{
		"the consumer opens a connection to its mapped pod":        {packet{tunnel, "10.70.0.6", true}, "10.65.3.5"},
		"a later packet of it, translated":                         {packet{tunnel, "10.65.3.5", false}, "10.65.3.5"},
		"to its pod on a node here":                                {packet{tunnel, "10.244.2.9", true}, "10.244.2.9"},
		"to the mapped address of another pod":                     {packet{tunnel, "10.70.0.7", true}, ""},
		"to its own pod by the address inside, that it must guess": {packet{tunnel, "10.65.3.5", true}, ""},
		"to another pod by the address inside":                     {packet{tunnel, "10.65.3.6", true}, ""},
		"to a pod of this cluster":                                 {packet{tunnel, "10.244.2.8", true}, ""},
		"to a node, or the metadata of a cloud":                    {packet{tunnel, "169.254.169.254", true}, ""},
		"an answer to a pod of this cluster":                       {packet{tunnel, "10.244.2.8", false}, "10.244.2.8"},
		"an answer to a pod elsewhere, which Liqo translates":      {packet{tunnel, "10.70.0.0", false}, "10.70.0.0"},
		"a packet without a connection to a node":                  {packet{tunnel, "192.168.0.2", false}, ""},
		"a connection to the consumer":                             {packet{inside, "10.71.1.4", true}, "10.71.1.4"},
		"an answer to the consumer":                                {packet{inside, "10.71.1.4", false}, "10.71.1.4"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.goes, gateway(t, isolated, tc.packet))
			if tc.first {
				require.Equal(t, tc.to, gateway(t, []firewall.Table{openTable(tableName)}, tc.packet), "not without rules")
			}
		})
	}
	require.Equal(t, "169.254.18.2", translated(t, chainsOf(isolated), packet{tunnel, "169.254.18.2", true}), "the check of the connection")
}

func TestDivide(t *testing.T) {
	a, b := targetOf("10.70.0.6", "10.65.3.5"), targetOf("10.70.0.7", "10.65.3.6")
	divided, cut := divide([]target{b, a, targetOf("10.70.0.7", "10.65.3.9")})
	require.Equal(t, []target{a, b}, divided[share(a.address)])
	require.Zero(t, cut)

	// If Liqo assigns addresses in order, all objects have the same number.
	nth := func(n int) target {
		return target{
			address: netip.AddrFrom4([4]byte{10, 70, byte(n >> 8), byte(n)}),
			leadsTo: netip.AddrFrom4([4]byte{10, 65, byte(n >> 8), byte(n)}),
		}
	}
	var many []target
	const ranges = maxShare / shareRange
	for n := range shares * shareRange * ranges {
		many = append(many, nth(n))
	}
	divided, cut = divide(many)
	require.Zero(t, cut)
	for _, targets := range divided {
		require.Len(t, targets, shareRange*ranges)
	}
	// Whatever the addresses are, no object has more than can be applied.
	many = nil
	for n := range 2 * maxShare {
		many = append(many, nth(n/shareRange*shareRange*shares+n%shareRange))
	}
	divided, cut = divide(many)
	require.Len(t, divided[share(many[0].address)], maxShare)
	require.Equal(t, maxShare, cut)
}
