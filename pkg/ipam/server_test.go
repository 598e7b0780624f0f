package ipam

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam/wire"
)

// dial connects a bare client; a nil config means plaintext.
func dial(t *testing.T, address string, config *tls.Config) wire.IpamClient {
	t.Helper()
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return wire.NewClient(conn)
}

func (a *authority) dialAs(t *testing.T, address string, organizations ...string) wire.IpamClient {
	t.Helper()
	config, err := ClientTLS(a.identity(organizations...), "", "")
	require.NoError(t, err)
	return dial(t, address, config)
}

func TestServerAnswersEachConsumerAboutItself(t *testing.T) {
	book := &directory{}
	book.set("consumer1", "10.35.7.1", "10.70.0.4")
	book.set("consumer1", "fd35::1", "fd70::4")
	ca := newAuthority(t)
	address, _ := serve(t, ServerConfig{TLS: ca.serverTLS(), Directory: book})
	one, two := ca.dialAs(t, address, "consumer1"), ca.dialAs(t, address, "consumer2")
	forged := ca.dialAs(t, address, "consumer2", "consumer1")

	for what, c := range map[string]struct {
		client      wire.IpamClient
		cluster, ip string
		want        string
		code        codes.Code
	}{
		"its own pod":                                {one, "consumer1", "10.35.7.1", "10.70.0.4", codes.OK},
		"its own pod, over IPv6":                     {one, "consumer1", "fd35::1", "fd70::4", codes.OK},
		"an IPv4 address written as IPv6":            {one, "consumer1", "::ffff:10.35.7.1", "10.70.0.4", codes.OK},
		"an address of no pod":                       {one, "consumer1", "10.35.7.2", "", codes.NotFound},
		"another consumer's pod":                     {two, "consumer2", "10.35.7.1", "", codes.NotFound},
		"another consumer's pod, in its name":        {two, "consumer1", "10.35.7.1", "", codes.PermissionDenied},
		"an address of no pod, in another's name":    {two, "consumer1", "10.35.7.2", "", codes.PermissionDenied},
		"a certificate with a second organisation":   {forged, "consumer1", "10.35.7.1", "", codes.PermissionDenied},
		"not even in the name of the first of them":  {forged, "consumer2", "10.35.7.1", "", codes.PermissionDenied},
		"no address":                                 {one, "consumer1", "", "", codes.InvalidArgument},
		"an address with a zone":                     {one, "consumer1", "fe80::1%eth0", "", codes.InvalidArgument},
		"no cluster":                                 {one, "", "10.35.7.1", "", codes.InvalidArgument},
		"a cluster that Liqo would not name like it": {one, "Consumer/1", "10.35.7.1", "", codes.InvalidArgument},
	} {
		t.Run(what, func(t *testing.T) {
			for range 2 { // Idempotent.
				got, err := c.client.MapEndpointIP(t.Context(), &wire.MapRequest{ClusterID: c.cluster, Ip: c.ip})
				require.Equal(t, c.code, status.Code(err), "%v", err)
				assert.Equal(t, c.want, got.GetIp())
				assert.NotContains(t, status.Convert(err).Message(), "consumer1", "the message has no identity")
			}
		})
	}
	// The message of a rejection is the same for another consumer's address and for an address of no pod.
	_, others := two.MapEndpointIP(t.Context(), &wire.MapRequest{ClusterID: "consumer2", Ip: "10.35.7.1"})
	_, nobodys := two.MapEndpointIP(t.Context(), &wire.MapRequest{ClusterID: "consumer2", Ip: "10.35.7.2"})
	assert.Equal(t, nobodys.Error(), others.Error())
}

func TestServerTakesOnlyClientCertificatesOfTheCA(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	address, _ := serve(t, ServerConfig{TLS: ca.serverTLS(), Directory: &directory{}})
	for what, identity := range map[string]*tls.Config{
		"none":       {MinVersion: tls.VersionTLS12, InsecureSkipVerify: true},
		"of another": mustTLS(t, stranger, ca),
	} {
		t.Run(what, func(t *testing.T) {
			_, err := dial(t, address, identity).BelongsToPodCIDR(t.Context(), &wire.BelongsRequest{Ip: "10.244.0.1"})
			assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		})
	}
	_, err := dial(t, address, nil).BelongsToPodCIDR(t.Context(), &wire.BelongsRequest{Ip: "10.244.0.1"})
	assert.Equal(t, codes.Unavailable, status.Code(err), "plaintext")
}

// Controllers, nodes and users may have certificates of the same CA.
func TestServerAnswersConsumersOnly(t *testing.T) {
	ca := newAuthority(t)
	address, _ := serve(t, ServerConfig{
		TLS: ca.serverTLS(), Directory: &directory{}, Limits: Limits{PerSecond: 100, Burst: 100, Concurrent: 9, Connections: 9},
	})
	for organization, want := range map[string]codes.Code{"consumer1": codes.OK, "system:nodes": codes.PermissionDenied} {
		_, err := ca.dialAs(t, address, organization).BelongsToPodCIDR(t.Context(), &wire.BelongsRequest{Ip: "10.244.0.1"})
		assert.Equal(t, want, status.Code(err), "%s: %v", organization, err)
	}
}

// mustTLS has an identity signed by one CA and trusts another CA.
func mustTLS(t *testing.T, signer, trusted *authority) *tls.Config {
	t.Helper()
	identity := signer.identity("consumer1")
	identity.CAData = trusted.pem()
	config, err := ClientTLS(identity, "", "")
	require.NoError(t, err)
	return config
}

func TestServerWithoutTLSBelievesItsCallers(t *testing.T) {
	book := &directory{}
	book.set("consumer1", "10.35.7.1", "10.70.0.4")
	address, _ := serve(t, ServerConfig{Directory: book})
	got, err := dial(t, address, nil).MapEndpointIP(t.Context(), &wire.MapRequest{ClusterID: "consumer1", Ip: "10.35.7.1"})
	require.NoError(t, err)
	assert.Equal(t, "10.70.0.4", got.GetIp())
}

func TestServerAnswersTheOtherCalls(t *testing.T) {
	address, _ := serve(t, ServerConfig{Directory: &directory{}})
	client := dial(t, address, nil)

	home, err := client.GetHomePodIP(t.Context(), &wire.GetHomePodIPRequest{ClusterID: "consumer1", Ip: "10.0.0.1"})
	require.NoError(t, err)
	assert.Equal(t, "10.0.0.2", home.GetHomeIP())
	_, err = client.GetHomePodIP(t.Context(), &wire.GetHomePodIPRequest{ClusterID: "consumer2", Ip: "10.0.0.1"})
	assert.Equal(t, codes.Unavailable, status.Code(err))

	for ip, want := range map[string]bool{"10.244.255.1": true, "10.245.0.1": false, "fd00::1": true, "fd01::1": false} {
		belongs, err := client.BelongsToPodCIDR(t.Context(), &wire.BelongsRequest{Ip: ip})
		require.NoError(t, err)
		assert.Equal(t, want, belongs.GetBelongs(), ip)
	}
	_, err = client.BelongsToPodCIDR(t.Context(), &wire.BelongsRequest{Ip: "x"})
	assert.Equal(t, codes.InvalidArgument, status.Code(err))

	for _, ip := range []string{"10.35.7.1", "10.35.7.1"} {
		_, err = client.UnmapEndpointIP(t.Context(), &wire.UnmapRequest{ClusterID: "consumer1", Ip: ip})
		require.NoError(t, err, "whether it was mapped or not")
	}
}

func TestServerTellsNoCauses(t *testing.T) {
	book := &directory{}
	metrics := NewMetrics()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, metrics.Register(registry))
	address, _ := serve(t, ServerConfig{Directory: book, Metrics: metrics})
	client := dial(t, address, nil)
	ask := func() error {
		_, err := client.MapEndpointIP(t.Context(), &wire.MapRequest{ClusterID: "consumer1", Ip: "10.35.7.1"})
		return err
	}
	book.fail(errors.New("secret of the API server"))
	assert.Equal(t, status.Error(codes.Internal, "internal error").Error(), ask().Error())
	book.fail(ErrNotYet)
	assert.Equal(t, codes.Unavailable, status.Code(ask()))
	book.fail(nil)
	assert.Equal(t, codes.NotFound, status.Code(ask()))

	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
		# HELP liqo_broker_ipam_requests_total Calls of the remote IPAM, by method and gRPC code.
		# TYPE liqo_broker_ipam_requests_total counter
		liqo_broker_ipam_requests_total{code="Internal",method="MapEndpointIP"} 1
		liqo_broker_ipam_requests_total{code="NotFound",method="MapEndpointIP"} 1
		liqo_broker_ipam_requests_total{code="OK",method="BelongsToPodCIDR"} 0
		liqo_broker_ipam_requests_total{code="OK",method="GetHomePodIP"} 0
		liqo_broker_ipam_requests_total{code="OK",method="MapEndpointIP"} 0
		liqo_broker_ipam_requests_total{code="OK",method="UnmapEndpointIP"} 0
		liqo_broker_ipam_requests_total{code="Unavailable",method="MapEndpointIP"} 1
	`), "liqo_broker_ipam_requests_total"))
}

// Liqo maps the address of a pod some time after the consumer has seen the address.
func TestACallWaitsForAnAddressThatIsNotMappedYet(t *testing.T) {
	book := &directory{}
	book.fail(ErrNotYet)
	address, _ := serve(t, ServerConfig{Directory: book})
	client := dial(t, address, nil)
	mapped := time.AfterFunc(held/4, func() {
		book.set("consumer1", "10.35.7.1", "10.70.0.4")
		book.fail(nil)
	})
	defer mapped.Stop()
	response, err := client.MapEndpointIP(t.Context(), &wire.MapRequest{ClusterID: "consumer1", Ip: "10.35.7.1"})
	require.NoError(t, err)
	require.Equal(t, "10.70.0.4", response.GetIp())

	book.fail(ErrNotYet)
	ctx, cancel := context.WithTimeout(t.Context(), held/4)
	defer cancel()
	_, err = client.MapEndpointIP(ctx, &wire.MapRequest{ClusterID: "consumer1", Ip: "10.35.7.1"})
	require.Equal(t, codes.DeadlineExceeded, status.Code(err), "its caller waits for less long")
}

func TestServerLimitsEachConsumer(t *testing.T) {
	ca := newAuthority(t)
	address, _ := serve(t, ServerConfig{
		TLS: ca.serverTLS(), Directory: &directory{}, Limits: Limits{PerSecond: 1e-9, Burst: 2, Concurrent: 1, Connections: 4},
	})
	greedy, modest := ca.dialAs(t, address, "consumer1"), ca.dialAs(t, address, "consumer2")
	ask := func(client wire.IpamClient) codes.Code {
		_, err := client.BelongsToPodCIDR(t.Context(), &wire.BelongsRequest{Ip: "10.244.0.1"})
		return status.Code(err)
	}
	assert.Equal(t, codes.OK, ask(greedy))
	assert.Equal(t, codes.OK, ask(greedy))
	assert.Equal(t, codes.ResourceExhausted, ask(greedy))
	assert.Equal(t, codes.ResourceExhausted, ask(ca.dialAs(t, address, "consumer1")), "another connection is the same consumer")
	assert.Equal(t, codes.OK, ask(modest))
}

func TestServerLimitsCallsInFlight(t *testing.T) {
	book := &directory{hold: make(chan struct{}), entered: make(chan struct{}, 10)}
	ca := newAuthority(t)
	address, _ := serve(t, ServerConfig{
		TLS: ca.serverTLS(), Directory: book, Limits: Limits{PerSecond: 1e6, Burst: 1e6, Concurrent: 1, Connections: 4},
	})
	first, second := ca.dialAs(t, address, "consumer1"), ca.dialAs(t, address, "consumer1")
	ask := func(client wire.IpamClient) codes.Code {
		_, err := client.MapEndpointIP(t.Context(), &wire.MapRequest{ClusterID: "consumer1", Ip: "10.35.7.1"})
		return status.Code(err)
	}
	held := make(chan codes.Code, 1)
	go func() { held <- ask(first) }()
	select {
	case <-book.entered:
	case <-time.After(patience):
		t.Fatal("the first call never reached the directory")
	}
	assert.Equal(t, codes.ResourceExhausted, ask(second))
	close(book.hold)
	assert.Equal(t, codes.NotFound, <-held)
	assert.Equal(t, codes.NotFound, ask(second), "the second call is admitted after the first one")
}

func TestServerLimitsTheConnectionsOfEachConsumer(t *testing.T) {
	ca := newAuthority(t)
	address, _ := serve(t, ServerConfig{
		TLS: ca.serverTLS(), Directory: &directory{}, Limits: Limits{PerSecond: 1e6, Burst: 1e6, Concurrent: 1, Connections: 2},
	})
	connect := func(organization string) (*grpc.ClientConn, func() codes.Code) {
		config, err := ClientTLS(ca.identity(organization), "", "")
		require.NoError(t, err)
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn, func() codes.Code {
			_, err := wire.NewClient(conn).BelongsToPodCIDR(t.Context(), &wire.BelongsRequest{Ip: "10.244.0.1"})
			return status.Code(err)
		}
	}
	first, one := connect("consumer1")
	_, two := connect("consumer1")
	_, three := connect("consumer1")
	_, other := connect("consumer2")
	assert.Equal(t, codes.OK, one())
	assert.Equal(t, codes.OK, two())
	assert.Equal(t, codes.Unavailable, three(), "one too many")
	assert.Equal(t, codes.OK, other())
	assert.Equal(t, codes.OK, one(), "existing connections stay open")
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool { return three() == codes.OK }, patience, 10*time.Millisecond, "a connection is available again")
}

func TestServerRefusesLongMessages(t *testing.T) {
	address, _ := serve(t, ServerConfig{Directory: &directory{}})
	_, err := dial(t, address, nil).MapEndpointIP(t.Context(), &wire.MapRequest{
		ClusterID: "consumer1", Ip: strings.Repeat("1", 2*maxMessage),
	})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
}

func TestServerSurvivesAFaultInAHandler(t *testing.T) {
	address, _ := serve(t, ServerConfig{}) // No Directory: a nil pointer is dereferenced.
	client := dial(t, address, nil)
	for range 2 {
		_, err := client.BelongsToPodCIDR(t.Context(), &wire.BelongsRequest{Ip: "10.0.0.1"})
		assert.Equal(t, status.Error(codes.Internal, "internal error").Error(), err.Error())
	}
}

func TestClientTLSNeedsAnIdentity(t *testing.T) {
	ca := newAuthority(t)
	token := ca.identity("consumer1")
	token.CertData, token.KeyData, token.BearerToken = nil, nil, "token"
	_, err := ClientTLS(token, "", "")
	require.ErrorContains(t, err, "no client certificate")

	rootless := ca.identity("consumer1")
	rootless.CAData = nil
	_, err = ClientTLS(rootless, "", "")
	require.ErrorContains(t, err, "no CA")
	_, err = ClientTLS(ca.identity("consumer1"), "/does/not/exist", "")
	require.ErrorContains(t, err, "/does/not/exist")

	config, err := ClientTLS(ca.identity("consumer1"), "", "broker.example")
	require.NoError(t, err)
	assert.Equal(t, "broker.example", config.ServerName)
}
