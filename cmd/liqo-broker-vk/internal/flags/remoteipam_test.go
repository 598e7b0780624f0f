package flags

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Consumers only need the certificate of the kubelet API if the remote IPAM is served with it.
func TestASelfSignedCertificateIsGoodWithoutTheRemoteIPAM(t *testing.T) {
	for name, tc := range map[string]struct {
		aggregator bool
		change     func(*RemoteIPAM)
	}{
		"no aggregator": {false, func(*RemoteIPAM) {}},
		"disabled":      {true, func(o *RemoteIPAM) { o.Address = "0" }},
		"plaintext":     {true, func(o *RemoteIPAM) { o.Insecure = true }},
		"another":       {true, func(o *RemoteIPAM) { o.CertFile, o.KeyFile = "cert.pem", "key.pem" }},
	} {
		o := NewRemoteIPAM()
		tc.change(&o)
		var f Faults
		o.Validate(&f, tc.aggregator)
		require.Empty(t, f, name)
	}
	require.Nil(t, (&RemoteIPAM{Address: "0"}).Config())
}
