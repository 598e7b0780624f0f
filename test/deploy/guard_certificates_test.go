package deploy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
)

// theAccount is the broker's user name at the API server.
const theAccount = "system:serviceaccount:" + Namespace + ":liqo-broker"

// approval returns the answer of admission to the broker's approval of a user's request.
func approval(t *testing.T, plugin *validating.Plugin, requester string, request []byte) error {
	t.Helper()
	before := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": certificatesv1.SchemeGroupVersion.String(), "kind": "CertificateSigningRequest",
		"metadata": map[string]any{"name": "csr-1"},
		"spec": map[string]any{
			"request": base64.StdEncoding.EncodeToString(request), "username": requester,
			"signerName": certificatesv1.KubeletServingSignerName,
		},
	}}
	approved := before.DeepCopy()
	conditions(condition("Approved", "True"))(approved.Object)
	return write(t, plugin, theAccount, certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), "approval",
		before, approved)
}

// requested returns the certificate request that the broker creates.
func requested(t *testing.T, node, ip string, names ...string) []byte {
	t.Helper()
	client, made := fake.NewClientset(), make(chan []byte, 1)
	client.PrependReactor("create", "certificatesigningrequests",
		func(action clienttesting.Action) (bool, runtime.Object, error) {
			request := action.(clienttesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
			select {
			case made <- request.Spec.Request:
			default:
			}
			return false, nil, nil
		})
	certificate, err := kubeletapi.NewServingCertificate(kubeletapi.Config{
		NodeName: node, NodeIP: ip, DNSNames: names, CertificateType: kubeletapi.CertificateKubelet, CertDir: t.TempDir(),
		ApproveCertificate: true, Local: client,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = certificate.Run(ctx) }()
	select {
	case request := <-made:
		return request
	case <-time.After(time.Minute):
		require.Fail(t, "no certificate was requested")
		return nil
	}
}

func TestTheBrokerApprovesTheCertificateOfItsNodeOnly(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	// forged returns the broker's request with one change.
	forged := func(change func(r *x509.CertificateRequest)) []byte {
		r := &x509.CertificateRequest{
			Subject:     pkix.Name{CommonName: "system:node:liqo-broker", Organization: []string{"system:nodes"}},
			IPAddresses: []net.IP{net.IPv4(10, 0, 0, 7)},
		}
		change(r)
		der, err := x509.CreateCertificateRequest(rand.Reader, r, key)
		require.NoError(t, err)
		return armoured(der)
	}
	named := func(name string) func(r *x509.CertificateRequest) {
		return func(r *x509.CertificateRequest) { r.Subject.CommonName = name }
	}
	ofP384, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:liqo-broker", Organization: []string{"system:nodes"}},
	}, other)
	require.NoError(t, err)

	const notOwn = "may approve only the serving certificate of its node liqo-broker"
	plugin, without := guard(t), unguarded(t, "liqo-broker-certificates")
	for name, tc := range map[string]struct {
		request []byte
		because string
	}{
		"its own":                             {requested(t, "liqo-broker", "10.0.0.7"), ""},
		"of IPv6":                             {requested(t, "liqo-broker", "fd00::7"), ""},
		"with the name of the remote IPAM":    {requested(t, "liqo-broker", "10.0.0.7", ipam.ServiceName), ""},
		"with that and IPv6":                  {requested(t, "liqo-broker", "fd00::7", ipam.ServiceName), ""},
		"as it is made here":                  {forged(func(*x509.CertificateRequest) {}), ""},
		"of another node":                     {requested(t, "worker-1", "10.0.0.7"), notOwn},
		"of a node with a name as long":       {forged(named("system:node:liqo-brokes")), notOwn},
		"of one that begins alike":            {forged(named("system:node:liqo-broker-1")), notOwn},
		"of a user":                           {forged(named("kubernetes-admin")), notOwn},
		"with another common name in its own": {forged(named("system:node:liqo-broker\x00")), notOwn},
		"of another group": {
			forged(func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:mastes"} }), notOwn,
		},
		"of one more group": {
			forged(func(r *x509.CertificateRequest) {
				r.Subject.Organization = append(r.Subject.Organization, "system:masters")
			}), notOwn,
		},
		"without a group":             {forged(func(r *x509.CertificateRequest) { r.Subject.Organization = nil }), notOwn},
		"with the name of another":    {forged(func(r *x509.CertificateRequest) { r.DNSNames = []string{"worker-1"} }), notOwn},
		"with one as long as its own": {forged(func(r *x509.CertificateRequest) { r.DNSNames = []string{"liqo-network-manages"} }), notOwn},
		"with another name as well": {
			forged(func(r *x509.CertificateRequest) { r.DNSNames = []string{ipam.ServiceName, "worker-1"} }), notOwn,
		},
		"without an address": {forged(func(r *x509.CertificateRequest) { r.IPAddresses = nil }), notOwn},
		"with the address of another": {
			forged(func(r *x509.CertificateRequest) { r.IPAddresses = append(r.IPAddresses, net.IPv4(10, 0, 0, 8)) }), notOwn,
		},
		"with a URI": {
			forged(func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }), notOwn,
		},
		"with a mail address": {forged(func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@b"} }), notOwn},
		"with another extension": {forged(func(r *x509.CertificateRequest) {
			r.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Value: []byte{48, 0}}}
		}), notOwn},
		"with another kind of key": {armoured(ofP384), notOwn},
		"of a consumer":            {requestOfSlice(t), notOwn},
		"a second one before it": {
			append(forged(named("system:node:worker-1")), forged(func(*x509.CertificateRequest) {})...), notOwn,
		},
		"one after it": {
			append(forged(func(*x509.CertificateRequest) {}), forged(named("system:node:worker-1"))...), notOwn,
		},
		"none":                         {nil, notOwn},
		"one too long to be read":      {[]byte(strings.Repeat("x", 10_000)), notOwn},
		"one that is no certificate's": {armoured(make([]byte, 300)), notOwn},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, approval(t, without, theAccount, tc.request))
			requireRefusal(t, approval(t, plugin, theAccount, tc.request), tc.because)
			requireRefusal(t, approval(t, plugin, "system:node:worker-1", tc.request), "only certificates that it requested itself")
		})
	}

	long := strings.Repeat("n", 63)
	values := Values(All)
	values["brokerNode"] = long
	objects, err := here.RenderedWith(Namespace, values)
	require.NoError(t, err)
	require.NoError(t, approval(t, guardOf(t, objects), theAccount, requested(t, long, "fd00::7", ipam.ServiceName)))
	values["brokerNode"] = long + "n"
	_, err = here.RenderedWith(Namespace, values)
	assert.ErrorContains(t, err, "brokerNode", "it is a label of pods, and of the Node")
}

// requestOfSlice returns an unmodified request of a consumer.
func requestOfSlice(t *testing.T) []byte {
	t.Helper()
	request, err := base64.StdEncoding.DecodeString(honest())
	require.NoError(t, err)
	return request
}
