package deploy

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	mathrand "math/rand"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication"
)

// theKey signs the requests of these tests.
var theKey = sync.OnceValue(func() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) })

// honest is the request for the slice s of consumer c1, as Liqo creates it.
var honest = sync.OnceValue(func() string {
	c1, s := liqov1beta1.ClusterID("c1"), &authv1beta1.ResourceSlice{}
	s.Name, s.Spec.ConsumerClusterID = "s", &c1
	request, err := authentication.GenerateCSRForResourceSlice(theKey(), s)
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(request)
})

var (
	commonName   = asn1.ObjectIdentifier{2, 5, 4, 3}
	organization = asn1.ObjectIdentifier{2, 5, 4, 10}
	unit         = asn1.ObjectIdentifier{2, 5, 4, 11}
	userID       = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}
)

func attribute(kind asn1.ObjectIdentifier, value any) pkix.AttributeTypeAndValue {
	return pkix.AttributeTypeAndValue{Type: kind, Value: value}
}

// subjectOf returns a subject with one name in each of its parts.
func subjectOf(names ...pkix.AttributeTypeAndValue) pkix.RDNSequence {
	var sequence pkix.RDNSequence
	for _, name := range names {
		sequence = append(sequence, pkix.RelativeDistinguishedNameSET{name})
	}
	return sequence
}

// requestOf returns a signed request with a subject.
func requestOf(t *testing.T, key crypto.PrivateKey, subject pkix.RDNSequence) []byte {
	t.Helper()
	raw, err := asn1.Marshal(subject)
	require.NoError(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{RawSubject: raw}, key)
	require.NoError(t, err)
	return der
}

func armoured(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// withRequest returns an object of Liqo with a request in its spec.
func withRequest(kind string, request []byte) *unstructured.Unstructured {
	o := slice(set(base64.StdEncoding.EncodeToString(request), "spec", "csr"))
	o.SetKind(kind)
	if kind == "Tenant" {
		set("c1", "spec", "clusterID")(o.Object)
		o.SetName("c1")
	}
	return o
}

var requests = map[string]string{"Tenant": "tenants", "ResourceSlice": "resourceslices", "Renew": "renews"}

func TestNoSecondNameIsSmuggled(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 4096)
	require.NoError(t, err)
	c1 := liqov1beta1.ClusterID(strings.Repeat("c", 63))
	longest := &authv1beta1.ResourceSlice{}
	longest.Name, longest.Spec.ConsumerClusterID = strings.Repeat("s", 63), &c1
	ofSlice, err := authentication.GenerateCSRForResourceSlice(theKey(), longest)
	require.NoError(t, err)
	ofTenant, err := authentication.GenerateCSRForControlPlane(rsaKey, c1)
	require.NoError(t, err)

	cn, o, other := attribute(commonName, "s-c1"), attribute(organization, "c1"), attribute(organization, "kubeadm:cluster-admins")
	good, forged := requestOf(t, theKey(), subjectOf(o, cn)), requestOf(t, theKey(), subjectOf(o, other, cn))
	broken := bytes.Replace(armoured(good), []byte("\n-----END"), []byte("A\n-----END"), 1)
	text := string(armoured(good))
	const names, block, size = "must name one common name and one organisation", "must be one PEM block", "may have 8192 characters"
	plugin, without := guard(t), unguarded(t, "liqo-broker-identities")
	for name, tc := range map[string]struct {
		request []byte
		because string
	}{
		"none yet":                          {nil, ""},
		"a slice's, by Liqo":                {ofSlice, ""},
		"a control plane's, with RSA":       {ofTenant, ""},
		"the other order":                   {armoured(requestOf(t, theKey(), subjectOf(cn, o))), ""},
		"without the last line break":       {[]byte(strings.TrimSpace(text)), ""},
		"letters beyond ASCII":              {armoured(requestOf(t, theKey(), subjectOf(attribute(organization, "kölsch"), cn))), ""},
		"a second organisation":             {armoured(forged), names},
		"before the first":                  {armoured(requestOf(t, theKey(), subjectOf(other, o, cn))), names},
		"after the common name":             {armoured(requestOf(t, theKey(), subjectOf(o, cn, other))), names},
		"in the part of the first":          {armoured(requestOf(t, theKey(), pkix.RDNSequence{{o, other}, {cn}})), names},
		"in the part of the common name":    {armoured(requestOf(t, theKey(), pkix.RDNSequence{{o}, {cn, other}})), names},
		"all in one part":                   {armoured(requestOf(t, theKey(), pkix.RDNSequence{{o, cn}})), names},
		"without an organisation":           {armoured(requestOf(t, theKey(), subjectOf(cn, cn))), names},
		"only one name":                     {armoured(requestOf(t, theKey(), subjectOf(cn))), names},
		"no name":                           {armoured(requestOf(t, theKey(), subjectOf())), names},
		"two organisations, no common name": {armoured(requestOf(t, theKey(), subjectOf(o, other))), names},
		"a unit as well":                    {armoured(requestOf(t, theKey(), subjectOf(o, cn, attribute(unit, "x")))), names},
		"the UID of another user":           {armoured(requestOf(t, theKey(), subjectOf(o, cn, attribute(userID, "x")))), names},
		"an empty part":                     {armoured(requestOf(t, theKey(), pkix.RDNSequence{{o}, {}, {cn}})), names},
		"a long second organisation": {
			armoured(requestOf(t, theKey(), subjectOf(o, attribute(organization, strings.Repeat("x", 400)), cn))), names,
		},
		"a name that is too long": {
			armoured(requestOf(t, theKey(), subjectOf(o, attribute(commonName, strings.Repeat("x", 119))))), names,
		},
		"an organisation that is a number": {armoured(requestOf(t, theKey(), subjectOf(attribute(organization, 7), cn))), names},
		"a string that Liqo does not write": {
			armoured(requestOf(t, theKey(),
				subjectOf(attribute(organization, asn1.RawValue{Tag: asn1.TagT61String, Bytes: []byte("c1")}), cn))),
			names,
		},
		"a name inside of a name": {
			armoured(requestOf(t, theKey(), subjectOf(o, attribute(commonName, asn1.RawValue{
				Tag: asn1.TagSequence, IsCompound: true, Bytes: []byte{6, 3, 85, 4, 10, 19, 1, 'x'},
			})))),
			names,
		},
		"garbage":                          {armoured(make([]byte, 200)), names},
		"lengths that lead beyond the end": {armoured(bytes.Repeat([]byte{0x30, 0x82, 0xff, 0xff, 0x30, 0xff}, 30)), names},
		"a good one before it":             {append(armoured(good), armoured(forged)...), block},
		"one that is skipped before it":    {append(broken, armoured(forged)...), block},
		"text before it":                   {append([]byte("-----BEGIN\n"), armoured(forged)...), block},
		"text after it":                    {[]byte(text + "x"), block},
		"a header": {
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Headers: map[string]string{"A": "B"}, Bytes: good}), block,
		},
		"the old name of the block":             {pem.EncodeToMemory(&pem.Block{Type: "NEW CERTIFICATE REQUEST", Bytes: good}), block},
		"line breaks of Windows":                {[]byte(strings.ReplaceAll(text, "\n", "\r\n")), block},
		"spaces in it":                          {[]byte(strings.Replace(text, "\nM", "\n M", 1)), block},
		"padding in it":                         {[]byte(strings.Replace(text, "\n", "\n====", 1)), block},
		"a byte beyond ASCII":                   {[]byte(strings.Replace(text, "\nM", "\n\xffM", 1)), block},
		"a zero byte":                           {[]byte(strings.Replace(text, "CERT", "CERT\x00", 1)), block},
		"no PEM":                                {good, block},
		"one letter":                            {[]byte("x"), block},
		"one that takes long to go through":     {bytes.Repeat(armoured(good), 200), size},
		"an RSA key of the size that is common": {armoured(requestOf(t, rsaKey, subjectOf(o, other, cn))), names},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, resource := range requests {
				r := sliceVersion.WithResource(resource)
				bad, fine := withRequest(kind, tc.request), withRequest(kind, ofSlice)
				require.NoError(t, write(t, without, theConsumer, r, "", nil, bad))
				requireRefusal(t, write(t, plugin, theConsumer, r, "", nil, bad), tc.because)
				requireRefusal(t, write(t, plugin, theConsumer, r, "", fine, bad), tc.because)
				// An existing object may be deleted, and cordoned.
				requireRefusal(t, write(t, plugin, liqo, r, "", bad, withRequest(kind, tc.request)), "")
			}
		})
	}
	broken64 := slice(set("\n"+honest(), "spec", "csr"))
	requireRefusal(t, ask(t, plugin, theConsumer, "", nil, broken64), block)
}

// The policy accepts a subject only if the signer reads one common name and one organisation in it, and nothing else.
func TestThePolicyCountsWhatTheSignerReads(t *testing.T) {
	plugin, random := guard(t), mathrand.New(mathrand.NewSource(1))
	kinds := []asn1.ObjectIdentifier{commonName, organization, commonName, organization, unit, userID}
	tags := []int{asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagPrintableString, asn1.TagUTF8String, asn1.TagIA5String}
	accepted := 0
	for range 300 {
		var subject pkix.RDNSequence
		plain := true
		for range 1 + random.Intn(3) {
			var part pkix.RelativeDistinguishedNameSET
			for range 1 + random.Intn(10)/9 {
				value := asn1.RawValue{Tag: tags[random.Intn(len(tags))], Bytes: []byte(strings.Repeat("n", random.Intn(140)))}
				plain = plain && value.Tag != asn1.TagIA5String && len(value.Bytes) <= 118
				part = append(part, attribute(kinds[random.Intn(len(kinds))], value))
			}
			subject = append(subject, part)
		}
		der := requestOf(t, theKey(), subject)
		read, err := x509.ParseCertificateRequest(der)
		require.NoError(t, err)
		has := map[string]int{}
		for _, name := range read.Subject.Names {
			has[name.Type.String()]++
		}
		single := len(read.Subject.Names) == 2 && has[commonName.String()] == 1 && has[organization.String()] == 1 && len(subject) == 2
		err = ask(t, plugin, theConsumer, "", nil, withRequest("ResourceSlice", armoured(der)))
		assert.Equal(t, single && plain, err == nil, "%v: %v", subject, err)
		if err == nil {
			accepted++
		}
	}
	require.Greater(t, accepted, 5)
}

// This also holds for requests with changed bytes: if the policy accepts one and the signer can still read it, the
// signer reads nothing more.
func TestAChangedRequestNamesNoMore(t *testing.T) {
	plugin, random := guard(t), mathrand.New(mathrand.NewSource(2))
	der := requestOf(t, theKey(), subjectOf(attribute(organization, "c1"), attribute(commonName, "s-c1"), attribute(organization, "x")))
	start := bytes.Index(der, []byte{2, 1, 0}) - 6
	for range 300 {
		changed := bytes.Clone(der)
		for range 1 + random.Intn(3) {
			changed[max(0, start)+random.Intn(60)] = []byte{
				48, 49, 3, 10, 19, 12, 6, 4, 129, 130, byte(random.Intn(256)), byte(random.Intn(80)),
			}[random.Intn(12)]
		}
		if ask(t, plugin, theConsumer, "", nil, withRequest("ResourceSlice", armoured(changed))) != nil {
			continue
		}
		if read, err := x509.ParseCertificateRequest(changed); err == nil {
			require.Len(t, read.Subject.Names, 2)
			require.Len(t, read.Subject.Organization, 1)
		}
	}
}
