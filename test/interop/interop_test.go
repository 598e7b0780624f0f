package interop

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	netv1alpha1 "github.com/liqotech/liqo/apis/net/v1alpha1"
	"github.com/liqotech/liqo/pkg/liqonet/ipam"
	"github.com/liqotech/liqo/pkg/liqonet/natmappinginflater"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
)

// patience bounds each wait of a test; only a failure waits that long.
const patience = time.Minute

// peer is a running test/ipampeer.
type peer struct {
	t     *testing.T
	stdin io.WriteCloser
	lines chan string
}

func startPeer(t *testing.T, args ...string) *peer {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "ipampeer")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./ipampeer")
	build.Dir = ".."
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))

	p := &peer{t: t, lines: make(chan string, 100)}
	cmd := exec.Command(binary, args...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	p.stdin, err = cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	go func() {
		defer close(p.lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.stdin.Close()
		for range p.lines { // Until its end.
		}
		assert.NoError(t, cmd.Wait())
	})
	return p
}

// line waits for a line with a prefix, and returns the rest of the line.
func (p *peer) line(prefix string) string {
	p.t.Helper()
	for end := time.After(patience); ; {
		select {
		case line, ok := <-p.lines:
			require.True(p.t, ok, "ipampeer has ended")
			if rest, found := strings.CutPrefix(line, prefix); found {
				return rest
			}
		case <-end:
			p.t.Fatalf("no line %q", prefix)
		}
	}
}

func (p *peer) say(words ...any) {
	p.t.Helper()
	_, err := fmt.Fprintln(p.stdin, words...)
	require.NoError(p.t, err)
}

// liqoClient is Liqo's generated client.
func liqoClient(t *testing.T, address string, creds credentials.TransportCredentials) ipam.IpamClient {
	t.Helper()
	conn, err := grpc.Dial(address, grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return ipam.NewIpamClient(conn)
}

func TestLiqosClientAsksOurServer(t *testing.T) {
	certificates := newCertificates(t)
	for name, c := range map[string]struct {
		dir   string
		creds credentials.TransportCredentials
	}{
		"in plaintext": {"", insecure.NewCredentials()},
		"with TLS":     {certificates.dir, credentials.NewTLS(certificates.client)},
	} {
		t.Run(name, func(t *testing.T) {
			client := liqoClient(t, startPeer(t, "serve", c.dir).line(""), c.creds)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for range 2 {
				got, err := client.MapEndpointIP(ctx, &ipam.MapRequest{ClusterID: "consumer1", Ip: "10.35.7.1"})
				require.NoError(t, err)
				assert.Equal(t, "10.70.0.4", got.GetIp())
			}
			_, err := client.MapEndpointIP(ctx, &ipam.MapRequest{ClusterID: "consumer1", Ip: "10.35.7.2"})
			assert.Equal(t, codes.NotFound, status.Code(err))
			_, err = client.UnmapEndpointIP(ctx, &ipam.UnmapRequest{ClusterID: "consumer1", Ip: "10.35.7.1"})
			require.NoError(t, err)
			home, err := client.GetHomePodIP(ctx, &ipam.GetHomePodIPRequest{ClusterID: "consumer1", Ip: "10.0.0.1"})
			require.NoError(t, err)
			assert.Equal(t, "10.0.0.2", home.GetHomeIP())
			for ip, want := range map[string]bool{"10.244.1.1": true, "10.245.1.1": false} {
				belongs, err := client.BelongsToPodCIDR(ctx, &ipam.BelongsRequest{Ip: ip})
				require.NoError(t, err)
				assert.Equal(t, want, belongs.GetBelongs())
			}
			if c.dir != "" {
				_, err = client.MapEndpointIP(ctx, &ipam.MapRequest{ClusterID: "consumer2", Ip: "10.35.7.1"})
				assert.Equal(t, codes.PermissionDenied, status.Code(err))
			}
		})
	}
}

// Liqo's server runs as in liqo-network-manager, with a client that keeps its objects in memory.
func TestOurClientAsksLiqosServer(t *testing.T) {
	server := ipam.NewIPAM()
	port := freePort(t)
	require.NoError(t, server.Init([]string{"10.0.0.0/8", "192.168.0.0/16"}, liqoStorage(t), port))
	t.Cleanup(server.Terminate)
	require.NoError(t, server.SetPodCIDR("10.244.0.0/16"))
	_, err := server.GetExternalCIDR(24)
	require.NoError(t, err)

	p := startPeer(t, "ask", fmt.Sprintf("127.0.0.1:%d", port))
	p.say("map", "10.35.7.1")
	assert.Contains(t, p.line("10.35.7.1 problem: "), "consumer1 has not a network configuration", "Liqo's words")

	_, _, err = server.GetSubnetsPerCluster("10.50.0.0/16", "192.168.5.0/24", "consumer1")
	require.NoError(t, err)
	require.NoError(t, server.AddLocalSubnetsPerCluster("10.60.0.0/16", "192.168.30.0/24", "consumer1"))
	first := p.line("10.35.7.1 192.168.30.")
	// Liqo's server gives its own client the same answer.
	direct, err := server.MapEndpointIP(t.Context(), &ipam.MapRequest{ClusterID: "consumer1", Ip: "10.35.7.1"})
	require.NoError(t, err)
	assert.Equal(t, direct.GetIp(), "192.168.30."+first)

	// An address of Liqo's own pods is mapped to the CIDR under which the consumer sees them.
	p.say("map", "10.244.3.4")
	assert.Equal(t, "3.4", p.line("10.244.3.4 10.60."))

	// After forget, the mapping is released. The next request is answered separately, and may get the same address.
	p.say("forget", "10.35.7.1")
	p.say("map", "10.35.7.1")
	assert.NotEmpty(t, p.line("10.35.7.1 192.168.30."))
}

func freePort(t *testing.T) int {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// liqoStorage returns the storage of Liqo's server. client-go's fake does not support names that an API server
// generates, so the NatMapping of the cluster exists from the start.
func liqoStorage(t *testing.T) *fake.FakeDynamicClient {
	t.Helper()
	group := schema.GroupVersion{Group: "net.liqo.io", Version: "v1alpha1"}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(group.WithKind("ipamstorages"), &netv1alpha1.IpamStorage{})
	scheme.AddKnownTypeWithName(group.WithKind("natmappings"), &netv1alpha1.NatMapping{})
	mappings, err := natmappinginflater.ForgeNatMapping("consumer1", "10.50.0.0/16", "192.168.30.0/24", map[string]string{})
	require.NoError(t, err)
	return fake.NewSimpleDynamicClientWithCustomListKinds(scheme, map[schema.GroupVersionResource]string{
		group.WithResource("ipamstorages"): "ipamstoragesList",
		group.WithResource("natmappings"):  "natmappingsList",
	}, mappings)
}

// certificates are issued by one CA: the server's are in a directory, and consumer1's are the client's credentials.
type certificates struct {
	dir    string
	client *tls.Config
}

func newCertificates(t *testing.T) certificates {
	t.Helper()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cluster"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey := newKey(t)
	sign := func(template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, caKey)
		require.NoError(t, err)
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	caPEM := sign(ca, caKey)
	serverKey, clientKey := newKey(t), newKey(t)
	server := sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{"liqo-network-manager"}, NotAfter: ca.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, serverKey)
	client := sign(&x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "slice", Organization: []string{"consumer1"}}, NotAfter: ca.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, clientKey)

	c := certificates{dir: t.TempDir(), client: &tls.Config{ServerName: "liqo-network-manager", RootCAs: x509.NewCertPool()}}
	for name, content := range map[string][]byte{"ca.pem": caPEM, "tls.crt": server, "tls.key": keyPEM(t, serverKey)} {
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, name), content, 0o600))
	}
	c.client.RootCAs.AppendCertsFromPEM(caPEM)
	identity, err := tls.X509KeyPair(client, keyPEM(t, clientKey))
	require.NoError(t, err)
	c.client.Certificates = []tls.Certificate{identity}
	return c
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func keyPEM(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}
