package ipam

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam/wire"
)

// The defaults of a ClientConfig.
const (
	defaultCapacity   = 10_000
	defaultWorkers    = 24 // Of those calls up to 16 wait at the server for an address that is not mapped yet (half of its default).
	defaultTimeout    = 5 * time.Second
	defaultFirstRetry = 200 * time.Millisecond
	defaultLastRetry  = 30 * time.Second
	defaultRefresh    = 5 * time.Minute
	// lastReconnect bounds the time between two attempts to connect to the server.
	lastReconnect = 5 * time.Second
	// defaultPerSecond is below the limit that a server allows a consumer by default.
	defaultPerSecond = 100
)

// ClientConfig configures a Client. Zero values of the limits are replaced by defaults.
type ClientConfig struct {
	Log logr.Logger
	// Server is HOST:PORT, as ParseRemote returns it.
	Server string
	// ClusterID is the id of this cluster, the consumer.
	ClusterID string
	// TLS authenticates this cluster (see ClientTLS). With nil the connection is plaintext, which Liqo v0.x's server
	// needs.
	TLS *tls.Config
	// UserAgent is sent before gRPC's own.
	UserAgent string
	// Changed is called, from a goroutine of Run and without a lock, when Map or Problem would now return another
	// result for an address. Forget also calls it, from its caller's goroutine. It must not block.
	Changed func(ip string)

	// Capacity is the maximum number of answers that are kept.
	Capacity int
	// Workers is the maximum number of concurrent lookups, PerSecond the maximum per second.
	Workers   int
	PerSecond float64
	// Timeout bounds one lookup.
	Timeout time.Duration
	// FirstRetry and LastRetry bound the time between two attempts, which grows by a quarter each time: an address that
	// is mapped after some seconds is known soon after that.
	FirstRetry, LastRetry time.Duration
	// Refresh is the time after which an answer is checked.
	Refresh time.Duration
}

// Client asks a remote IPAM for the addresses with which pods are reached. Only Run blocks.
type Client struct {
	cfg     ClientConfig
	calls   *rate.Limiter
	metrics *Metrics

	mu     sync.Mutex
	ledger *ledger       // Guarded by mu.
	queue  *addressQueue // The addresses to look up; nil unless Run runs. Guarded by mu.
}

// NewClient returns a client; it sends no request before Run.
func NewClient(cfg ClientConfig) *Client {
	orDefault(&cfg.Capacity, defaultCapacity)
	orDefault(&cfg.Workers, defaultWorkers)
	orDefault(&cfg.PerSecond, defaultPerSecond)
	orDefault(&cfg.Timeout, defaultTimeout)
	orDefault(&cfg.FirstRetry, defaultFirstRetry)
	orDefault(&cfg.LastRetry, defaultLastRetry)
	orDefault(&cfg.Refresh, defaultRefresh)
	if cfg.Changed == nil {
		cfg.Changed = func(string) {}
	}
	return &Client{
		cfg: cfg, calls: rate.NewLimiter(rate.Limit(cfg.PerSecond), cfg.Workers), ledger: newLedger(cfg.Capacity),
		metrics: newClientMetrics(),
	}
}

func orDefault[T int | float64 | time.Duration](value *T, instead T) {
	if *value <= 0 {
		*value = instead
	}
}

// Map returns the server's address for ip. If it is not known, it is looked up, and Changed is called with ip once it
// is known.
func (c *Client) Map(ip string) (address string, known bool) {
	if invalid(ip) != nil {
		return "", false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	address, known, ask := c.ledger.lookup(ip)
	if ask && c.queue != nil {
		c.queue.Add(ip)
	}
	return address, known
}

// Forget is called when no pod has the address any more: the answer to a pending request is dropped, and the server is
// asked to release its mapping, without a retry. A pod that gets the same address later gets a new answer. If the
// address was known, Changed is called with it, for a pod that already has it.
func (c *Client) Forget(ip string) {
	c.mu.Lock()
	known, release := c.ledger.forget(ip)
	if release && c.queue != nil {
		c.queue.Add(ip)
	}
	c.mu.Unlock()
	if known {
		c.cfg.Changed(ip)
	}
}

// Problem returns why an address that was looked up is unknown; nil if it is known, or if the first attempt has not
// ended.
func (c *Client) Problem(ip string) error {
	if err := invalid(ip); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if problem := c.ledger.problem(ip); problem != nil {
		return fmt.Errorf("remote IPAM %s: address %s: %w", c.cfg.Server, ip, problem)
	}
	return nil
}

func invalid(ip string) error {
	if _, err := netip.ParseAddr(ip); err != nil {
		return fmt.Errorf("remote IPAM: %q is not an IP address", ip)
	}
	return nil
}

// Run looks addresses up until ctx ends, and then returns nil. It connects with the first lookup.
func (c *Client) Run(ctx context.Context) error {
	conn, err := grpc.NewClient(c.cfg.Server, c.options()...)
	if err != nil {
		return fmt.Errorf("remote IPAM %s: %w", c.cfg.Server, err)
	}
	defer func() { _ = conn.Close() }()
	queue := c.newQueue()
	server := wire.NewClient(conn)
	group, ctx := errgroup.WithContext(ctx)
	for range c.cfg.Workers {
		group.Go(func() error {
			for c.processNext(ctx, queue, server) {
			}
			return nil
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.queue = nil
		queue.ShutDown()
		return nil
	})
	return group.Wait()
}

func (c *Client) options() []grpc.DialOption {
	creds := insecure.NewCredentials()
	if c.cfg.TLS != nil {
		creds = credentials.NewTLS(c.cfg.TLS)
	}
	reconnect := backoff.DefaultConfig
	reconnect.MaxDelay = min(c.cfg.LastRetry, lastReconnect)
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithUnaryInterceptor(c.metrics.count),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: c.cfg.Timeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		// The next call detects a broken connection; without calls nothing is sent.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
		// A service configuration from DNS is not trusted.
		grpc.WithDisableServiceConfig(),
	}
	if c.cfg.UserAgent != "" {
		options = append(options, grpc.WithUserAgent(c.cfg.UserAgent))
	}
	return options
}

// newQueue creates the queue, with the addresses that were looked up before Run.
func (c *Client) newQueue() *addressQueue {
	queue := newAddressQueue()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = queue
	clear(c.ledger.released) // No server has a mapping yet.
	for ip := range c.ledger.open {
		queue.Add(ip)
	}
	return queue
}

// processNext handles one address of the queue. It returns false when the queue is shut down. No two workers have the
// same address at the same time, so the requests for one address are in order.
func (c *Client) processNext(ctx context.Context, queue *addressQueue, server wire.IpamClient) bool {
	ip, closed := queue.next()
	if closed {
		return false
	}
	defer queue.Done(ip)
	c.mu.Lock()
	todo := c.ledger.next(ip)
	c.mu.Unlock()

	if todo.release {
		c.release(ctx, server, ip)
	}
	if todo.question == nil && todo.refresh == nil {
		return true
	}
	address, err := c.mapAddress(ctx, server, ip)
	if ctx.Err() != nil {
		return true
	}
	c.mu.Lock()
	result := c.ledger.record(ip, todo, address, err)
	c.mu.Unlock()
	switch {
	case result.retry > 0:
		queue.AddAfter(ip, jitter(c.retryDelay(result.retry)))
	case result.known:
		queue.AddAfter(ip, jitter(c.cfg.Refresh))
	}
	if result.changed {
		c.cfg.Changed(ip)
	}
	return true
}

func (c *Client) mapAddress(ctx context.Context, server wire.IpamClient, ip string) (string, error) {
	if err := c.calls.Wait(ctx); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	response, err := server.MapEndpointIP(ctx, &wire.MapRequest{ClusterID: c.cfg.ClusterID, Ip: ip})
	if err != nil {
		return "", err
	}
	address, err := netip.ParseAddr(response.GetIp())
	if err != nil || address.IsUnspecified() {
		return "", errors.New("the server's answer is not an IP address")
	}
	return address.Unmap().String(), nil
}

// release asks the server once to release a mapping: a server detects mappings without a pod itself.
func (c *Client) release(ctx context.Context, server wire.IpamClient, ip string) {
	if c.calls.Wait(ctx) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if _, err := server.UnmapEndpointIP(ctx, &wire.UnmapRequest{ClusterID: c.cfg.ClusterID, Ip: ip}); err != nil && ctx.Err() == nil {
		c.cfg.Log.V(1).Info("Cannot release an address", "address", ip, "reason", err.Error())
	}
}

// retryDelay is the time before the next attempt after that many attempts.
func (c *Client) retryDelay(tries int) time.Duration {
	return min(c.cfg.LastRetry, time.Duration(float64(c.cfg.FirstRetry)*math.Pow(1.25, float64(min(tries-1, 100)))))
}

// jitter returns between four and five quarters of d, so that requests that failed together are not retried together.
func jitter(d time.Duration) time.Duration {
	return d + rand.N(d/4+1) //nolint:gosec // Not a secret.
}
