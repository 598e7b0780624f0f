package kubeletapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
)

// CertificateType is the signer of the serving certificate; its values are the values of Liqo's --certificate-type.
type CertificateType string

// The certificate types.
const (
	CertificateKubelet    CertificateType = "kubelet"
	CertificateAWS        CertificateType = "aws"
	CertificateSelfSigned CertificateType = "self-signed"
)

const (
	awsSigner = "beta.eks.amazonaws.com/app-serving"
	// storePrefix is Liqo's prefix of the file names, so that an existing certificate is used.
	storePrefix = "virtual-kubelet"
)

// ServingCertificate is the certificate of a server. It is renewed before it expires.
type ServingCertificate interface {
	// Get is tls.Config's GetCertificate. It returns an error until the cluster has signed the certificate.
	Get(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Run renews the certificate until ctx ends, and then returns nil.
	Run(ctx context.Context) error
}

// NewServingCertificate returns the certificate of the kubelet API, which other servers may use too. It needs
// CertificateType, CertDir, NodeName, NodeIP, DNSNames, ApproveCertificate and Local.
func NewServingCertificate(cfg Config) (ServingCertificate, error) {
	ip := net.ParseIP(cfg.NodeIP)
	if ip == nil {
		return nil, fmt.Errorf("node IP %q is not an IP address", cfg.NodeIP)
	}
	switch cfg.CertificateType {
	case CertificateSelfSigned:
		return httpserve.NewSelfSigned(cfg.NodeName, []net.IP{ip}, cfg.DNSNames), nil
	case CertificateAWS:
		return newSigned(cfg, awsSigner, ip)
	default:
		return newSigned(cfg, certificatesv1.KubeletServingSignerName, ip)
	}
}

// signed is a certificate that the cluster signs on request.
type signed struct{ manager certificate.Manager }

func newSigned(cfg Config, signer string, ip net.IP) (*signed, error) {
	store, err := certificate.NewFileStore(storePrefix, cfg.CertDir, cfg.CertDir, "", "")
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	request := &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "system:node:" + cfg.NodeName, Organization: []string{"system:nodes"}},
		IPAddresses: []net.IP{ip},
		DNSNames:    cfg.DNSNames,
	}
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
		// The manager's ECDSA keys do not use key encipherment, but the signers of Kubernetes accept a request without
		// it only since v1.27, and Liqo's own request has it.
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
