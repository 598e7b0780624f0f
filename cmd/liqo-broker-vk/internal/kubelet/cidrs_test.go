package kubelet

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestAddressesAreTranslatedByTheFlagsOfLaterVersionsOfLiqo(t *testing.T) {
	o, flags := NewOptions(), pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Install(flags)
	require.Nil(t, o.addressConfig().Table)
	require.NoError(t, flags.Parse([]string{
		"--remote-pod-cidr=10.244.0.0/16", "--remote-pod-cidr-remap=10.30.0.0/16",
		"--remote-pod-cidr=10.245.0.0/16", "--remote-pod-cidr-remap=10.31.0.0/16",
		"--remote-external-cidr=10.70.0.0/16", "--remote-external-cidr-remap=10.28.0.0/16",
	}))
	table := o.addressConfig().Table
	for address, want := range map[string]string{"10.244.1.2": "10.30.1.2", "10.245.1.2": "10.31.1.2", "10.70.0.4": "10.28.0.4"} {
		got, err := table.Translate(address)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.NoError(t, flags.Parse([]string{"--remote-pod-cidr=10.246.0.0/16"}))
	require.Nil(t, o.addressConfig().Table)
	require.ErrorContains(t, o.validate(), "3 pod CIDRs are declared but 2 remapped")
}
