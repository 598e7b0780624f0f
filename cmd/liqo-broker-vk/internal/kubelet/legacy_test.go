package kubelet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheArgumentsOfLiqoV0AreKnown(t *testing.T) {
	require.Empty(t, LegacyFlag(liqoArguments()))
	require.Empty(t, LegacyFlag(nil))
	require.Empty(t, LegacyFlag([]string{"broker", "--ipam-server=x"}), "of a command")
	require.Empty(t, LegacyFlag([]string{"--remote-ipam=server=x", "--labels-not-reflected=a"}))
	require.Equal(t, "--foreign-cluster-name", LegacyFlag([]string{"--foreign-cluster-id=p1", "--foreign-cluster-name=p"}))
	require.Equal(t, "--ipam-server", LegacyFlag([]string{"--ipam-server", "x"}))
}
