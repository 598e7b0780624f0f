package sandbox

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"

	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
)

// Reject makes a provider reject (401) the broker's identity for its first slice, as after a rotation of its CA, until
// accept is called. It replaces the certificate where Liqo's controllers at the provider write it: Liqo's controllers
// in the broker's cluster create the kubeconfig from it. If Reject returns an error and an accept, the provider may
// reject the identity already: an answer was lost.
func (s *Sandbox) Reject(ctx context.Context, provider string) (accept func(context.Context) error, err error) {
	read := func(ctx context.Context) (*authv1beta1.ResourceSlice, error) {
		rs := &authv1beta1.ResourceSlice{}
		err := s.Cluster(provider).Client.Get(ctx, client.ObjectKey{Namespace: "liqo-tenant-" + Broker, Name: provider}, rs)
		if err == nil && rs.Status.AuthParams == nil {
			err = fmt.Errorf("ResourceSlice %s of %s has no certificate", rs.Name, provider)
		}
		return rs, err
	}
	sign := func(ctx context.Context, rs *authv1beta1.ResourceSlice, certificate []byte) error {
		was := rs.DeepCopy()
		rs.Status.AuthParams.SignedCRT = certificate
		return s.Cluster(provider).Client.Status().Patch(ctx, rs, client.MergeFrom(was))
	}
	rs, err := read(ctx)
	if err != nil {
		return nil, err
	}
	accepted := rs.Status.AuthParams.SignedCRT
	forged, err := signedByAnother(accepted)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		rs, err := read(ctx)
		if err != nil {
			return err
		}
		return sign(ctx, rs, accepted)
	}, sign(ctx, rs, forged)
}

// signedByAnother returns a certificate for the same key and name, signed by an unknown CA.
func signedByAnother(certificate []byte) ([]byte, error) {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return nil, errors.New("the certificate is not PEM")
	}
	own, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "another"}, NotBefore: own.NotBefore, NotAfter: own.NotAfter,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	forged, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: own.Subject, NotBefore: own.NotBefore, NotAfter: own.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, own.PublicKey, key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: forged}), err
}
