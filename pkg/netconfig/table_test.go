package netconfig

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	cidrutils "github.com/liqotech/liqo/pkg/utils/cidr"
	liqomapping "github.com/liqotech/liqo/pkg/utils/ipam/mapping"
)

// configuration returns a Configuration that liqo-controller-manager has remapped.
func configuration(pod, podSeen, external, externalSeen []string) *networkingv1beta1.Configuration {
	return &networkingv1beta1.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-remote", Name: "remote", Generation: 3},
		Spec: networkingv1beta1.ConfigurationSpec{Remote: networkingv1beta1.ClusterConfig{
			CIDR: networkingv1beta1.ClusterConfigCIDR{
				Pod: cidrutils.FromStrings(pod), External: cidrutils.FromStrings(external),
			},
		}},
		Status: networkingv1beta1.ConfigurationStatus{
			Conditions: []metav1.Condition{{
				Type:               networkingv1beta1.ConfigurationConditionNetworkCIDRsConfigured,
				Status:             metav1.ConditionTrue,
				ObservedGeneration: 3,
			}},
			Remote: &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterConfigCIDR{
				Pod: cidrutils.FromStrings(podSeen), External: cidrutils.FromStrings(externalSeen),
			}},
		},
	}
}

func TestTranslate(t *testing.T) {
	table, err := NewTable(configuration(
		[]string{"10.244.0.0/16", "10.20.0.0/16", "fd00:1::/64"}, []string{"10.30.0.0/16", "10.20.0.0/16", "fd00:2::/64"},
		[]string{"10.70.0.0/16"}, []string{"10.28.0.0/16"},
	))
	require.NoError(t, err)

	for name, tc := range map[string]struct{ in, out string }{
		"an address of a remapped pod CIDR moves":            {"10.244.7.1", "10.30.7.1"},
		"an address of a pod CIDR that was not remapped":     {"10.20.5.9", "10.20.5.9"},
		"an address of the external CIDR moves":              {"10.70.0.4", "10.28.0.4"},
		"an address of none of the CIDRs stays":              {"8.8.8.8", "8.8.8.8"},
		"an IPv6 address moves":                              {"fd00:1::42", "fd00:2::42"},
		"an IPv4 address written as IPv6 counts as IPv4":     {"::ffff:10.244.7.1", "10.30.7.1"},
		"the first and the last address of a CIDR are in it": {"10.244.255.255", "10.30.255.255"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := table.Translate(tc.in)
			require.NoError(t, err)
			require.Equal(t, tc.out, out)
		})
	}

	_, err = table.Translate("not an address")
	require.Error(t, err)
}

// Liqo v1.1 has no conditions: it sets a label.
func TestTheConfigurationOfLiqoV11(t *testing.T) {
	cfg := configuration([]string{"10.244.0.0/16"}, []string{"10.30.0.0/16"}, []string{"10.70.0.0/16"}, []string{"10.28.0.0/16"})
	cfg.Status.Conditions = nil
	_, err := NewTable(cfg)
	require.ErrorIs(t, err, ErrNotConfigured)
	cfg.Labels = map[string]string{configuredLabel: configuredValue}
	table, err := NewTable(cfg)
	require.NoError(t, err)
	seen, err := table.Translate("10.244.7.1")
	require.NoError(t, err)
	require.Equal(t, "10.30.7.1", seen)
}

func TestNewTableRefuses(t *testing.T) {
	pending := configuration([]string{"10.0.0.0/16"}, []string{"10.1.0.0/16"}, nil, nil)
	pending.Status.Conditions[0].Status = metav1.ConditionFalse
	outdated := configuration([]string{"10.0.0.0/16"}, []string{"10.1.0.0/16"}, nil, nil)
	outdated.Generation++
	labelled := pending.DeepCopy() // Liqo v1.2 does not remove the label of v1.1.
	labelled.Labels = map[string]string{configuredLabel: configuredValue}
	empty := configuration(nil, nil, nil, nil)
	empty.Status.Remote = nil

	for name, tc := range map[string]struct {
		cfg           *networkingv1beta1.Configuration
		notConfigured bool
	}{
		"a Configuration that is not remapped yet":    {pending, true},
		"one that has the label of Liqo v1.1 besides": {labelled, true},
		"a Configuration that changed since it was":   {outdated, true},
		"a Configuration without an answer":           {empty, true},
		"more CIDRs declared than remapped":           {configuration([]string{"10.0.0.0/16"}, nil, nil, nil), false},
		"a CIDR remapped to the other IP family": {
			configuration([]string{"10.0.0.0/16"}, []string{"fd00::/64"}, nil, nil), false,
		},
		"a remapped CIDR that is none":                      {configuration([]string{"10.0.0.0/16"}, []string{"x"}, nil, nil), false},
		"an external CIDR that is declared but is not one":  {configuration(nil, nil, []string{"x"}, []string{"10.0.0.0/16"}), false},
		"fewer external CIDRs declared than were remapped ": {configuration(nil, nil, nil, []string{"10.0.0.0/16"}), false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewTable(tc.cfg)
			require.Error(t, err)
			require.Equal(t, tc.notConfigured, errors.Is(err, ErrNotConfigured))
		})
	}
}

func drawPrefix(t *rapid.T, label string, size, bits int) netip.Prefix {
	addr, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, label))
	return netip.PrefixFrom(addr, bits).Masked()
}

// TestTranslateAgreesWithLiqo: for any CIDRs and any address, the translation matches Liqo's own virtual kubelet.
func TestTranslateAgreesWithLiqo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{4, 16}).Draw(t, "bytes")
		bits := rapid.IntRange(0, 8*size).Draw(t, "bits")
		declared := drawPrefix(t, "declared", size, bits)
		seen := drawPrefix(t, "seen", size, rapid.IntRange(0, 8*size).Draw(t, "seen bits"))
		cfg := configuration([]string{declared.String()}, []string{seen.String()}, nil, nil)

		host := rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "host")
		any, _ := netip.AddrFromSlice(host)
		if any.Is4In6() || declared.Addr().Is4In6() || seen.Addr().Is4In6() {
			t.Skip("Liqo reads these as IPv4")
		}
		inside := rebase(any, declared)

		table, err := NewTable(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range []string{any.String(), inside.String()} {
			want, err := liqomapping.MapAddressWithConfiguration(cfg, address)
			if err != nil {
				t.Fatal(err)
			}
			got, err := table.Translate(address)
			if err != nil || got != want {
				t.Fatalf("%s: got %s (%v), want %s", address, got, err, want)
			}
		}
	})
}

// TestTranslateIsReversible: with prefixes of equal length, translating in both directions yields the same address, so
// two pods never share an address.
func TestTranslateIsReversible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{4, 16}).Draw(t, "bytes")
		bits := rapid.IntRange(0, 8*size).Draw(t, "bits")
		from, to := drawPrefix(t, "from", size, bits), drawPrefix(t, "to", size, bits)
		host, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "host"))
		address := rebase(host, from)

		if there := rebase(address, to); !to.Contains(there) || rebase(there, from) != address {
			t.Fatalf("%s in %s became %s in %s", address, from, there, to)
		}
	})
}
