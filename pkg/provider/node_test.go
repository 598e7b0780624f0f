package provider

import (
	"testing"

	"github.com/stretchr/testify/require"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
)

func TestNetworkingThatIsKnownToBeDisabled(t *testing.T) {
	for name, tc := range map[string]struct {
		status liqov1beta1.ForeignClusterStatus
		want   bool
	}{
		"nothing is written yet":                    {liqov1beta1.ForeignClusterStatus{Role: liqov1beta1.UnknownRole}, false},
		"Liqo v1.1 has written that it is disabled": {liqov1beta1.ForeignClusterStatus{Role: liqov1beta1.ProviderRole}, true},
		"Liqo v1.1 has written that it is enabled": {liqov1beta1.ForeignClusterStatus{
			Role: liqov1beta1.ProviderRole, Modules: liqov1beta1.Modules{Networking: liqov1beta1.Module{Enabled: true}},
		}, false},
		"with Liqo v1.2 the node provider finds out": {
			liqov1beta1.ForeignClusterStatus{Role: liqov1beta1.ProviderRole, ObservedGeneration: 1}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, networkingDisabled(&liqov1beta1.ForeignCluster{Status: tc.status}))
		})
	}
	require.False(t, networkingDisabled(nil))
}
