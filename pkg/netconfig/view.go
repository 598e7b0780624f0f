package netconfig

import (
	"errors"
	"fmt"
	"reflect"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	fcutils "github.com/liqotech/liqo/pkg/utils/foreigncluster"
)

// Module is the known state of the peering's networking module.
type Module int

// The states of the networking module. Unknown lasts until the ForeignCluster's status has been written once.
const (
	Unknown Module = iota
	Disabled
	Enabled
)

// View has all inputs that decide how an address of the remote cluster is shown (podip.Ways). It is immutable; the zero
// View has no information.
type View struct {
	Module Module
	// Table is nil until the Configuration of the remote cluster has been remapped.
	Table *Table
	// Established is true while the network connection to the cluster is up. It is only tracked if all clusters are
	// watched (Options.All): no address of a peering's own pods depends on it.
	Established bool
}

// Reaches reports whether an address of the cluster can be reached now.
func (v View) Reaches(address string) bool {
	return v.Established && v.Table != nil && v.Table.Covers(address)
}

// Next derives the View from the current objects. A value that was known before and cannot be read now is kept: no
// address is lost if a ForeignCluster or a Configuration disappears, or is being remapped. The error is the reason why
// the Configuration could not be used; the View is valid nevertheless.
func (v View) Next(fc *liqov1beta1.ForeignCluster, cfgs []*networkingv1beta1.Configuration) (View, error) {
	next := v
	switch {
	case fc == nil:
	case fcutils.IsNetworkingModuleEnabled(fc):
		next.Module = Enabled
	case Reconciled(fc):
		next.Module = Disabled
	}

	switch len(cfgs) {
	case 0:
		return next, nil
	case 1:
		table, err := NewTable(cfgs[0])
		if err != nil {
			return next, fmt.Errorf("configuration %s/%s: %w", cfgs[0].Namespace, cfgs[0].Name, err)
		}
		next.Table = &table
		return next, nil
	default:
		return next, errors.New("several network configurations for the same remote cluster")
	}
}

// Reconciled reports whether Liqo has written the status of a ForeignCluster. Before that, the zero value looks like a
// disabled networking module (Liqo's node provider reads it so, applyForeignCluster). Liqo v1.1 writes no generation.
// It writes the role in the same update as the modules, and Unknown is also the default of the CRD.
func Reconciled(fc *liqov1beta1.ForeignCluster) bool {
	switch fc.Status.Role {
	case liqov1beta1.ConsumerRole, liqov1beta1.ProviderRole, liqov1beta1.ConsumerAndProviderRole:
		return true
	}
	return fc.Status.ObservedGeneration > 0
}

func (v View) equal(other View) bool {
	return v.Module == other.Module && v.Established == other.Established && reflect.DeepEqual(v.Table, other.Table)
}
