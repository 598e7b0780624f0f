package ipam

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"
)

// ServiceName is the name of Liqo v0.x's IPAM Service. The broker's certificate is valid for it, whatever address
// consumers use to reach the broker.
const ServiceName = "liqo-network-manager"

// ServerTLS serves with a certificate, and only accepts callers with a client certificate of the CA. Both are read at
// every handshake, so they can change.
func ServerTLS(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), clientCA func() (x509.VerifyOptions, bool)) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			verify, ok := clientCA()
			if !ok {
				return nil, errors.New("the CA of the client certificates is not known yet")
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, GetCertificate: certificate,
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: verify.Roots, SessionTicketsDisabled: true,
			}, nil
		},
	}
}

// consumerOf returns the id of the calling cluster: the organisation of the client certificate that Liqo's peering gave
// it (pkg/liqo-controller-manager/authentication.OrganizationResourceSliceCSR). A certificate with several
// organisations is rejected: Liqo signs a request if the first one is correct (checkCSR), so the consumer can choose
// the others freely.
func consumerOf(ctx context.Context) (string, error) {
	caller, ok := peer.FromContext(ctx)
	if !ok {
		return "", status.Error(codes.Unauthenticated, "a client certificate is required")
	}
	return consumerFrom(caller.AuthInfo)
}

// consumerFrom is consumerOf for a connection.
func consumerFrom(who credentials.AuthInfo) (string, error) {
	info, ok := who.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return "", status.Error(codes.Unauthenticated, "a client certificate is required")
	}
	organizations := info.State.VerifiedChains[0][0].Subject.Organization
	if len(organizations) != 1 || organizations[0] == "" {
		return "", status.Error(codes.PermissionDenied, "the client certificate must have exactly one organisation, the id of the cluster")
	}
	return organizations[0], nil
}

// ClientTLS authenticates this cluster with the client certificate of a peering's identity. It accepts a server whose
// certificate is valid for serverName, by default ServiceName, and signed by the CA in caFile, by default the CA of the
// remote cluster in that identity. It returns an error if the identity has no client certificate (an EKS identity has a
// token instead), or no CA.
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
		return nil, errors.New("remote IPAM: the identity of the peering has no client certificate to authenticate this cluster")
	}
	if len(proof.CAData) == 0 && proof.CAFile == "" {
		return nil, errors.New("remote IPAM: the identity of the peering has no CA: " +
			"set --remote-ipam-ca to the CA of the server's certificate")
	}
	config, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: proof})
	if err != nil {
		return nil, fmt.Errorf("remote IPAM: %w", err)
	}
	return config, nil
}
