package netconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
)

func foreignCluster(observed int64, networking bool) *liqov1beta1.ForeignCluster {
	fc := &liqov1beta1.ForeignCluster{}
	fc.Status.ObservedGeneration = observed
	fc.Status.Modules.Networking.Enabled = networking
	return fc
}

func TestView(t *testing.T) {
	remapped := configuration([]string{"10.244.0.0/16"}, []string{"10.30.0.0/16"}, nil, nil)
	table, err := NewTable(remapped)
	require.NoError(t, err)
	outdated := remapped.DeepCopy()
	outdated.Generation++
	// The status that Liqo v1.1 writes has no generation and no conditions.
	earlier := foreignCluster(0, false)
	earlier.Status.Role = liqov1beta1.ProviderRole
	unwritten := foreignCluster(0, false)
	unwritten.Status.Role = liqov1beta1.UnknownRole

	for name, tc := range map[string]struct {
		before  View
		fc      *liqov1beta1.ForeignCluster
		cfgs    []*networkingv1beta1.Configuration
		shown   string
		known   bool
		faulted bool
	}{
		"nothing known yet: withheld":                         {},
		"the ForeignCluster has no status yet: withheld":      {fc: foreignCluster(0, false)},
		"the ForeignCluster has the default status: withheld": {fc: unwritten},
		"networking module off in Liqo v1.1: shown as it is":  {fc: earlier, shown: "10.244.1.2", known: true},
		"networking module off: shown as it is":               {fc: foreignCluster(1, false), shown: "10.244.1.2", known: true},
		"module off, Configuration there: shown as it is": {
			fc: foreignCluster(1, false), cfgs: []*networkingv1beta1.Configuration{remapped}, shown: "10.244.1.2", known: true,
		},
		"module on, no Configuration: withheld": {fc: foreignCluster(1, true)},
		"module on, Configuration not remapped: withheld": {
			fc: foreignCluster(1, true), cfgs: []*networkingv1beta1.Configuration{outdated}, faulted: true,
		},
		"module on, Configuration remapped: translated": {
			fc: foreignCluster(1, true), cfgs: []*networkingv1beta1.Configuration{remapped}, shown: "10.30.1.2", known: true,
		},
		"module switched on later, no Configuration yet": {before: View{Module: Disabled}, fc: foreignCluster(2, true)},
		"the Configuration vanished: still translated": {
			before: View{Module: Enabled, Table: &table}, fc: foreignCluster(1, true), shown: "10.30.1.2", known: true,
		},
		"the ForeignCluster vanished: still translated": {
			before: View{Module: Enabled, Table: &table}, shown: "10.30.1.2", known: true,
		},
		"the Configuration is being remapped: still translated": {
			before: View{Module: Enabled, Table: &table}, fc: foreignCluster(1, true),
			cfgs:  []*networkingv1beta1.Configuration{outdated},
			shown: "10.30.1.2", known: true, faulted: true,
		},
		"several Configurations: what was known before, reported": {
			before: View{Module: Enabled, Table: &table}, fc: foreignCluster(1, true),
			cfgs:  []*networkingv1beta1.Configuration{remapped, remapped},
			shown: "10.30.1.2", known: true, faulted: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			view, err := tc.before.Next(tc.fc, tc.cfgs)
			require.Equal(t, tc.faulted, err != nil, "%v", err)
			shown, known := translate(view, "10.244.1.2")
			require.Equal(t, tc.known, known)
			require.Equal(t, tc.shown, shown)
		})
	}
}

// translate returns the address with which an address of the remote cluster is shown, and whether it is known.
func translate(v View, address string) (string, bool) {
	switch {
	case v.Module == Disabled:
		return address, true
	case v.Module == Enabled && v.Table != nil:
		translated, err := v.Table.Translate(address)
		return translated, err == nil
	}
	return "", false
}
