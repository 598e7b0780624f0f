package netconfig

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	networkingutils "github.com/liqotech/liqo/pkg/liqo-controller-manager/networking/utils"
)

// ErrNotConfigured means that a Configuration has not been remapped yet, or not since its last change.
var ErrNotConfigured = errors.New("network configuration not remapped yet")

// mapping is one CIDR as the remote cluster declares it, and as this cluster sees it.
type mapping struct {
	declared, seen netip.Prefix
}

// Table translates the addresses of one remote cluster. It is immutable; the zero Table is the identity.
type Table struct {
	// mappings in the order in which they are tried: pod CIDRs, then external CIDRs, as Liqo does
	// (pkg/utils/ipam/mapping.MapAddressWithConfiguration).
	mappings []mapping
}

// NewTable reads the translation from a Configuration. The error is ErrNotConfigured while liqo-controller-manager has
// not reconciled the current generation.
func NewTable(cfg *networkingv1beta1.Configuration) (Table, error) {
	if !remapped(cfg) || cfg.Status.Remote == nil {
		return Table{}, ErrNotConfigured
	}

	return TableOf(cfg.Spec.Remote.CIDR, cfg.Status.Remote.CIDR)
}

// Liqo v1.1 has no conditions of Configurations. It sets this label once all CIDRs are remapped, and never removes it
// (its pkg/liqo-controller-manager/networking/external-network/configuration/label.go).
const (
	configuredLabel = "configuration.liqo.io/configured"
	configuredValue = "true"
)

// remapped reports whether the CIDRs in the status belong to the current spec. With Liqo v1.1 this is unknown if the
// spec has changed since: the status may still belong to the previous spec.
func remapped(cfg *networkingv1beta1.Configuration) bool {
	if len(cfg.Status.Conditions) == 0 {
		return cfg.Labels[configuredLabel] == configuredValue
	}
	return networkingutils.AreConfigurationNetworkCIDRsConfigured(cfg)
}

// TableOf returns the translation of the CIDRs that the remote cluster declares into the CIDRs with which this cluster
// sees them. Both lists are in the same order.
func TableOf(declared, seen networkingv1beta1.ClusterConfigCIDR) (Table, error) {
	pod, err := align("pod", declared.Pod, seen.Pod)
	if err != nil {
		return Table{}, err
	}
	external, err := align("external", declared.External, seen.External)
	if err != nil {
		return Table{}, err
	}
	return Table{mappings: append(pod, external...)}, nil
}

func align(kind string, declared, seen []networkingv1beta1.CIDR) ([]mapping, error) {
	if len(declared) != len(seen) {
		return nil, fmt.Errorf("%d %s CIDRs are declared but %d remapped", len(declared), kind, len(seen))
	}
	mappings := make([]mapping, 0, len(declared))
	for i := range declared {
		from, err := netip.ParsePrefix(declared[i].String())
		if err != nil {
			return nil, fmt.Errorf("declared %s CIDR: %w", kind, err)
		}
		to, err := netip.ParsePrefix(seen[i].String())
		if err != nil {
			return nil, fmt.Errorf("remapped %s CIDR: %w", kind, err)
		}
		if from.Addr().Is4() != to.Addr().Is4() {
			return nil, fmt.Errorf("%s CIDR %s is remapped to %s, which is of the other IP family", kind, from, to)
		}
		mappings = append(mappings, mapping{declared: from.Masked(), seen: to.Masked()})
	}
	return mappings, nil
}

// Translate returns the address with which this cluster sees the remote cluster's address. An address outside the
// remote cluster's CIDRs is not changed.
func (t Table) Translate(address string) (string, error) {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return "", fmt.Errorf("pod address: %w", err)
	}
	addr = addr.Unmap()
	m := t.mappingOf(addr)
	if m == nil || m.declared == m.seen {
		return address, nil
	}
	return rebase(addr, m.seen).String(), nil
}

// Covers reports whether an address is in one of the CIDRs that the remote cluster declares.
func (t Table) Covers(address string) bool {
	addr, err := netip.ParseAddr(address)
	return err == nil && t.mappingOf(addr.Unmap()) != nil
}

// Shows reports whether this cluster sees one of the remote cluster's addresses as this address.
func (t Table) Shows(address string) bool {
	addr, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(t.mappings, func(m mapping) bool { return m.seen.Contains(addr.Unmap()) })
}

func (t Table) mappingOf(addr netip.Addr) *mapping {
	for i := range t.mappings {
		if t.mappings[i].declared.Contains(addr) {
			return &t.mappings[i]
		}
	}
	return nil
}

// rebase keeps the host bits of addr (those outside the mask of prefix) under the network bits of prefix.
func rebase(addr netip.Addr, prefix netip.Prefix) netip.Addr {
	host, network := addr.AsSlice(), prefix.Addr().AsSlice()
	for i := range network {
		bits := min(max(prefix.Bits()-8*i, 0), 8)
		mask := byte(0xff << (8 - bits))
		network[i] = network[i]&mask | host[i]&^mask
	}
	rebased, _ := netip.AddrFromSlice(network)
	return rebased
}
