package kubeletapi

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"
)

// CertificateType says who signs the serving certificate; the values are those of Liqo's --certificate-type.
type CertificateType string

// The certificate types.
const (
	CertificateKubelet    CertificateType = "kubelet"
	CertificateAWS        CertificateType = "aws"
	CertificateSelfSigned CertificateType = "self-signed"
)

const (
	awsSigner = "beta.eks.amazonaws.com/app-serving"
	// storePrefix is Liqo's name of the files, so that a certificate that is there already is used.
	storePrefix = "virtual-kubelet"

	selfSignedLifetime = 365 * 24 * time.Hour
	selfSignedMargin   = 24 * time.Hour
)

// ServingCertificate is the certificate of a server, renewed in time.
type ServingCertificate interface {
	// Get is tls.Config's GetCertificate. It fails until the cluster has signed the certificate.
	Get(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Run renews the certificate until ctx ends, and then returns nil.
	Run(ctx context.Context) error
}

// NewServingCertificate is the certificate of the kubelet API, for whoever serves something else with it as well. It
// uses CertificateType, CertDir, NodeName, NodeIP, DNSNames, ApproveCertificate and Local.
func NewServingCertificate(cfg Config) (ServingCertificate, error) {
	ip := net.ParseIP(cfg.NodeIP)
	if ip == nil {
		return nil, fmt.Errorf("node IP %q is not an IP address", cfg.NodeIP)
	}
	switch cfg.CertificateType {
	case CertificateSelfSigned:
		return &selfSigned{template: template(cfg, "liqo.io", ip)}, nil
	case CertificateAWS:
		return newSigned(cfg, awsSigner, ip)
	default:
		return newSigned(cfg, certificatesv1.KubeletServingSignerName, ip)
	}
}

func template(cfg Config, organization string, ip net.IP) *x509.CertificateRequest {
	return &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "system:node:" + cfg.NodeName, Organization: []string{organization}},
		IPAddresses: []net.IP{ip},
		DNSNames:    cfg.DNSNames,
	}
}

// signed is a certificate that the cluster signs on request.
type signed struct{ manager certificate.Manager }

func newSigned(cfg Config, signer string, ip net.IP) (*signed, error) {
	store, err := certificate.NewFileStore(storePrefix, cfg.CertDir, cfg.CertDir, "", "")
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	request := template(cfg, "system:nodes", ip)
	local := cfg.Local
	if cfg.ApproveCertificate {
		local = approving{local}
	}
	manager, err := certificate.NewManager(&certificate.Config{
		Name:             "kubelet-serving",
		ClientsetFn:      func(*tls.Certificate) (kubernetes.Interface, error) { return local, nil },
		GetTemplate:      func() *x509.CertificateRequest { return request },
		SignerName:       signer,
		CertificateStore: store,
		// Key encipherment is of no use with the ECDSA keys of the manager, but the signers of Kubernetes take a
		// request without it only since v1.27, and Liqo's own asks for it.
		Usages: []certificatesv1.KeyUsage{
			certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	return &signed{manager: manager}, nil
}

func (s *signed) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := s.manager.Current(); current != nil {
		return current, nil
	}
	return nil, errors.New("the serving certificate has not been signed yet")
}

func (s *signed) Run(ctx context.Context) error {
	s.manager.Start()
	<-ctx.Done()
	s.manager.Stop()
	return nil
}

// selfSigned is a certificate that nobody vouches for, made when it is needed.
type selfSigned struct {
	template *x509.CertificateRequest

	mu      sync.Mutex
	current *tls.Certificate // Guarded by mu.
	expires time.Time        // Guarded by mu.
}

func (*selfSigned) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (s *selfSigned) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.current != nil && now.Add(selfSignedMargin).Before(s.expires) {
		return s.current, nil
	}
	expires := now.Add(selfSignedLifetime)
	fresh, err := selfSign(s.template, now, expires)
	if err != nil {
		return nil, fmt.Errorf("self-signed certificate: %w", err)
	}
	s.current, s.expires = fresh, expires
	return fresh, nil
}

func selfSign(request *x509.CertificateRequest, from, until time.Time) (*tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{
		Subject:      request.Subject,
		IPAddresses:  request.IPAddresses,
		DNSNames:     request.DNSNames,
		SerialNumber: serial,
		NotBefore:    from,
		NotAfter:     until,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, public, private)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, nil
}
