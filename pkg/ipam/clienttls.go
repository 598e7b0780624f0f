package ipam

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
)

// ClientTLS proves, by the client certificate of a peering's identity, who this cluster is, and accepts a server whose
// certificate is valid for serverName, by default ServiceName, and signed by the CA in caFile, by default the CA of the
// remote cluster in that identity.
// The error says that the identity has no client certificate (that of EKS has a token), or no CA.
func ClientTLS(identity *rest.Config, caFile, serverName string) (*tls.Config, error) {
	from := identity.TLSClientConfig
	proof := rest.TLSClientConfig{
		CertFile: from.CertFile, CertData: from.CertData, KeyFile: from.KeyFile, KeyData: from.KeyData,
		CAFile: from.CAFile, CAData: from.CAData,
		ServerName: ServiceName, NextProtos: []string{"h2"},
	}
	if serverName != "" {
		proof.ServerName = serverName
	}
	if caFile != "" {
		ca, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("CA of the remote IPAM: %w", err)
		}
		proof.CAFile, proof.CAData = "", ca
	}
	if len(proof.CertData) == 0 && proof.CertFile == "" {
		return nil, errors.New("remote IPAM: the identity of the peering has no client certificate to prove who this cluster is")
	}
	if len(proof.CAData) == 0 && proof.CAFile == "" {
		return nil, errors.New("remote IPAM: the identity of the peering has no CA, name the file of the one that signs the server's certificate")
	}
	config, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: proof})
	if err != nil {
		return nil, fmt.Errorf("remote IPAM: %w", err)
	}
	return config, nil
}
