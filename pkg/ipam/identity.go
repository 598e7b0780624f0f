package ipam

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// ServiceName is the name of Liqo v0.x's IPAM Service. The broker's certificate is valid for it, whatever the address is
// under which consumers reach it.
const ServiceName = "liqo-network-manager"

// ServerTLS serves with a certificate, and only callers with a client certificate of the CA. Both are read at every
// handshake, so that they can change.
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

// consumerOf is the id of the calling cluster: the organisation of the client certificate that Liqo's peering gave it
// (pkg/liqo-controller-manager/authentication.OrganizationResourceSliceCSR). A certificate with several is refused:
// Liqo signs a request when the first of them is right (checkCSR), so the others are what the consumer wrote there.
func consumerOf(ctx context.Context) (string, error) {
	caller, ok := peer.FromContext(ctx)
	if !ok {
		return "", status.Error(codes.Unauthenticated, "a client certificate is needed")
	}
	return consumerFrom(caller.AuthInfo)
}

// consumerFrom is consumerOf a connection.
func consumerFrom(who credentials.AuthInfo) (string, error) {
	info, ok := who.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return "", status.Error(codes.Unauthenticated, "a client certificate is needed")
	}
	organizations := info.State.VerifiedChains[0][0].Subject.Organization
	if len(organizations) != 1 || organizations[0] == "" {
		return "", status.Error(codes.PermissionDenied, "the client certificate must have one organisation, the id of the cluster")
	}
	return organizations[0], nil
}
