package ipam

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// patience bounds the waits of a test; only a failing test waits that long.
const patience = 20 * time.Second

// running is a running Client, and the addresses for which it called Changed.
type running struct {
	*Client
	t       *testing.T
	changed chan string
}

func start(t *testing.T, cfg ClientConfig) running {
	t.Helper()
	r := running{t: t, changed: make(chan string, 1000)}
	cfg.Log, cfg.ClusterID, cfg.Changed = testr.New(t), "consumer1", func(ip string) {
		select {
		case r.changed <- ip:
		default: // The test does not read any more, or has a thousand addresses to read.
		}
	}
	cfg.FirstRetry, cfg.LastRetry = time.Millisecond, 20*time.Millisecond
	r.Client = NewClient(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return r
}

// becomes waits until Map returns an address. It calls Map only after Changed.
func (r running) becomes(ip, want string) {
	r.t.Helper()
	for end := time.After(patience); ; {
		address, known := r.Map(ip)
		if known && address == want {
			return
		}
		select {
		case <-r.changed:
		case <-end:
			r.t.Fatalf("%s is %q, %v; problem: %v", ip, address, known, r.Problem(ip))
		}
	}
}

// hasProblem waits until there is a problem with that code.
func (r running) hasProblem(ip string, code codes.Code) {
	r.t.Helper()
	for end := time.After(patience); status.Code(r.Problem(ip)) != code; {
		select {
		case <-r.changed:
		case <-end:
			r.t.Fatalf("%s: %v", ip, r.Problem(ip))
		}
	}
}

func TestClientLearnsAddressesWithTheIdentityOfThePeering(t *testing.T) {
	book := &directory{}
	book.set("consumer1", "10.35.7.1", "10.70.0.4")
	ca := newAuthority(t)
	address, _ := serve(t, ServerConfig{TLS: ca.serverTLS(), Directory: book})
	config, err := ClientTLS(ca.identity("consumer1"), "", "")
	require.NoError(t, err)
	c := start(t, ClientConfig{Server: address, TLS: config})

	_, known := c.Map("10.35.7.1")
	assert.False(t, known)
	c.becomes("10.35.7.1", "10.70.0.4")
	before := book.calls()
	for range 100 {
		c.becomes("10.35.7.1", "10.70.0.4")
	}
	assert.Equal(t, before, book.calls(), "from the cache")
	assert.NoError(t, c.Problem("10.35.7.1"))
}

func TestClientAsksWhatWasAskedBeforeItRan(t *testing.T) {
	book := &directory{}
	book.set("consumer1", "10.35.7.1", "10.70.0.4")
	address, _ := serve(t, ServerConfig{Directory: book})
	changed := make(chan string, 1)
	c := NewClient(ClientConfig{Log: testr.New(t), Server: address, ClusterID: "consumer1", Changed: func(ip string) { changed <- ip }})
	_, known := c.Map("10.35.7.1")
	require.False(t, known)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	assert.Equal(t, "10.35.7.1", <-changed)
	cancel()
	require.NoError(t, <-done)
	got, known := c.Map("10.35.7.1")
	assert.True(t, known, "what is known stays known")
	assert.Equal(t, "10.70.0.4", got)
}

func TestClientRefusesAServerThatIsNotTheBroker(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	address, _ := serve(t, ServerConfig{TLS: stranger.serverTLS(), Directory: &directory{}})
	config, err := ClientTLS(ca.identity("consumer1"), "", "")
	require.NoError(t, err)
	c := start(t, ClientConfig{Server: address, TLS: config})
	c.Map("10.35.7.1")
	c.hasProblem("10.35.7.1", codes.Unavailable)
	require.ErrorContains(t, c.Problem("10.35.7.1"), "certificate")
}

func TestClientRetriesUntilThereIsAnAnswer(t *testing.T) {
	book := &directory{}
	address, _ := serve(t, ServerConfig{Directory: book})
	c := start(t, ClientConfig{Server: address})
	c.Map("10.35.7.1")
	c.hasProblem("10.35.7.1", codes.NotFound)
	require.ErrorContains(t, c.Problem("10.35.7.1"), "remote IPAM "+address+": address 10.35.7.1: ")
	book.fail(ErrNotYet)
	c.hasProblem("10.35.7.1", codes.Unavailable)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, c.RegisterMetrics(registry))
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
		# HELP liqo_broker_vk_remote_ipam_unanswered Requested addresses for which the remote IPAM has not answered yet.
		# TYPE liqo_broker_vk_remote_ipam_unanswered gauge
		liqo_broker_vk_remote_ipam_unanswered 1
	`), "liqo_broker_vk_remote_ipam_unanswered"))
	book.fail(nil)
	book.set("consumer1", "10.35.7.1", "10.70.0.4")
	c.becomes("10.35.7.1", "10.70.0.4")

	calls := func(code codes.Code) float64 {
		return testutil.ToFloat64(c.metrics.requests.WithLabelValues("MapEndpointIP", code.String()))
	}
	require.NotZero(t, calls(codes.NotFound))
	require.NotZero(t, calls(codes.Unavailable))
	require.Equal(t, 1., calls(codes.OK))
}

// While the broker is down, known addresses stay known, and new ones have a problem until the broker is back.
func TestClientOutlivesTheBroker(t *testing.T) {
	book := &directory{}
	book.set("consumer1", "10.35.7.1", "10.70.0.4")
	book.set("consumer1", "10.35.7.2", "10.70.0.5")
	address, stop := serve(t, ServerConfig{Directory: book})
	c := start(t, ClientConfig{Server: address, Refresh: time.Millisecond})
	c.becomes("10.35.7.1", "10.70.0.4")
	stop()
	c.Map("10.35.7.2")
	c.hasProblem("10.35.7.2", codes.Unavailable)
	c.becomes("10.35.7.1", "10.70.0.4")

	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	serveOn(t, ln, ServerConfig{Directory: book})
	c.becomes("10.35.7.2", "10.70.0.5")
	c.becomes("10.35.7.1", "10.70.0.4")
}

func TestClientFollowsTheServer(t *testing.T) {
	book := &directory{}
	book.set("consumer1", "10.35.7.1", "10.70.0.4")
	address, _ := serve(t, ServerConfig{Directory: book})
	c := start(t, ClientConfig{Server: address, Refresh: time.Millisecond, PerSecond: 1e4})
	c.becomes("10.35.7.1", "10.70.0.4")
	book.set("consumer1", "10.35.7.1", "10.70.0.9")
	c.becomes("10.35.7.1", "10.70.0.9")
	book.set("consumer1", "10.35.7.1", "")
	c.hasProblem("10.35.7.1", codes.NotFound)
	_, known := c.Map("10.35.7.1")
	assert.False(t, known)
}

// An address that was forgotten and is used again is looked up again; an answer that was in flight is not used.
func TestClientForgets(t *testing.T) {
	book := &directory{}
	book.set("consumer1", "10.35.7.1", "10.70.0.4")
	address, _ := serve(t, ServerConfig{Directory: book})
	c := start(t, ClientConfig{Server: address})
	c.becomes("10.35.7.1", "10.70.0.4")
	for len(c.changed) > 0 {
		<-c.changed
	}
	book.set("consumer1", "10.35.7.1", "10.70.0.5")
	c.Forget("10.35.7.1")
	assert.Equal(t, "10.35.7.1", <-c.changed, "a pod that has the address already is to ask again")
	_, known := c.Map("10.35.7.1")
	assert.False(t, known)
	c.becomes("10.35.7.1", "10.70.0.5")
	c.Forget("10.35.7.9")
	assert.Empty(t, c.changed, "nothing was known")
}

func TestClientNeverAsksForNonsense(t *testing.T) {
	c := NewClient(ClientConfig{Log: testr.New(t), Server: "127.0.0.1:1"})
	_, known := c.Map("x")
	assert.False(t, known)
	require.ErrorContains(t, c.Problem("x"), "not an IP address")
	assert.Empty(t, c.ledger.open)
	assert.NoError(t, c.Problem("10.0.0.1"))
}

// Lookups, forgets and refreshes run concurrently: this tests for data races, and for correct answers.
func TestClientIsSafeForConcurrentUse(t *testing.T) {
	book := &directory{}
	addresses := []string{"10.35.7.1", "10.35.7.2", "10.35.7.3", "10.35.7.4", "10.35.7.5"}
	for i, ip := range addresses {
		book.set("consumer1", ip, net.IPv4(10, 70, 0, byte(i+1)).String())
	}
	address, _ := serve(t, ServerConfig{Directory: book})
	c := start(t, ClientConfig{Server: address, Capacity: 3, PerSecond: 1e4, Refresh: time.Millisecond})
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 300 {
				n := (i + worker) % len(addresses)
				if got, known := c.Map(addresses[n]); known {
					assert.Equal(t, net.IPv4(10, 70, 0, byte(n+1)).String(), got)
				}
				_ = c.Problem(addresses[n])
				if i%7 == 0 {
					c.Forget(addresses[n])
				}
			}
		})
	}
	all.Wait()
}

func TestClientHasAUserAgent(t *testing.T) {
	heard := make(chan []string, 1)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		call, _ := metadata.FromIncomingContext(stream.Context())
		select {
		case heard <- call.Get("user-agent"):
		default:
		}
		return status.Error(codes.NotFound, "nothing is here")
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	c := start(t, ClientConfig{Server: listener.Addr().String(), UserAgent: "ours/v1"})
	c.Map("10.35.7.1")
	select {
	case name := <-heard:
		require.Len(t, name, 1)
		require.Regexp(t, "^ours/v1 grpc-go/", name[0])
	case <-time.After(patience):
		t.Fatal("nothing was asked")
	}
}

// However long the mapping of an address takes, the client knows it a fraction of that time later.
func TestRetriesKeepPaceWithTheWait(t *testing.T) {
	c := NewClient(ClientConfig{})
	waited := time.Duration(0)
	for tries := 1; tries < 1000; tries++ {
		delay := c.retryDelay(tries)
		require.LessOrEqual(t, delay, waited/4+defaultFirstRetry+time.Microsecond)
		require.LessOrEqual(t, delay, defaultLastRetry)
		waited += delay
	}
	require.Equal(t, defaultLastRetry, c.retryDelay(1000))
}
