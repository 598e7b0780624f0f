package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority is a certificate authority of one cluster. As with kubeadm it signs
// the API server's certificate, its users' and, through the CSR API, the
// kubelets'.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// CertPEM is the certificate in PEM form.
	CertPEM []byte
}

// KeyPair is a certificate and its private key in PEM form.
type KeyPair struct{ Cert, Key []byte }

const validity = 10 * 365 * 24 * time.Hour

func newAuthority(commonName string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(validity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, CertPEM: pemBlock("CERTIFICATE", der)}, nil
}

// issue signs a certificate for a client (no names) or a server (its DNS names and IP addresses).
func (a *authority) issue(subject pkix.Name, names ...string) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return KeyPair{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, n := range names {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return KeyPair{}, err
	}
	keyPEM, err := keyToPEM(key)
	if err != nil {
		return KeyPair{}, err
	}
	return KeyPair{Cert: pemBlock("CERTIFICATE", der), Key: keyPEM}, nil
}

// serviceAccountKeys makes the key pair that signs and verifies ServiceAccount
// tokens.
func serviceAccountKeys() (public, private []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, err
	}
	private, err = keyToPEM(key)
	return pemBlock("PUBLIC KEY", der), private, err
}

func keyToPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pemBlock("EC PRIVATE KEY", der), nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// pkiFiles writes the control plane's key and certificate files to dir.
func (c *Cluster) pkiFiles() error {
	names := []string{"127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", c.serviceIP()}
	server, err := c.ca.issue(pkix.Name{CommonName: "kube-apiserver"}, append(names, c.cfg.Names...)...)
	if err != nil {
		return err
	}
	kubeletClient, err := c.ca.issue(pkix.Name{CommonName: kubeletClientName})
	if err != nil {
		return err
	}
	frontProxy, err := c.ca.issue(pkix.Name{CommonName: "front-proxy-client"})
	if err != nil {
		return err
	}
	saPublic, saPrivate, err := serviceAccountKeys()
	if err != nil {
		return err
	}
	caKey, err := keyToPEM(c.ca.key)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"ca.crt": c.ca.CertPEM, "ca.key": caKey,
		"apiserver.crt": server.Cert, "apiserver.key": server.Key,
		"kubelet-client.crt": kubeletClient.Cert, "kubelet-client.key": kubeletClient.Key,
		"front-proxy.crt": frontProxy.Cert, "front-proxy.key": frontProxy.Key,
		"sa.pub": saPublic, "sa.key": saPrivate,
	} {
		if err := os.WriteFile(filepath.Join(c.cfg.Dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
