package ipam

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam/wire"
)

const (
	// callTimeout bounds one call; a Directory reads caches.
	callTimeout = 5 * time.Second
	// handshakeTimeout bounds a handshake.
	handshakeTimeout = 10 * time.Second
	// shutdownGrace is the time that calls in flight have to end after the context has ended.
	shutdownGrace = 2 * time.Second
	// maxMessage is ample for a cluster id and an address (bytes).
	maxMessage = 4 << 10
	// maxConnections bounds the connections of all callers together.
	maxConnections = 1024
	// Idle connections are closed after maxIdle, and every connection after maxAge, so that certificates are verified
	// again.
	maxIdle, maxAge, maxAgeGrace = 10 * time.Minute, time.Hour, 10 * time.Second
	// A connection is closed if its caller pings more often than leastPing, or does not answer a ping within
	// pingTimeout.
	leastPing, pingEvery, pingTimeout = 20 * time.Second, time.Minute, 20 * time.Second
)

// Directory maps the addresses of pods. The server has authenticated the consumer of every call before.
type Directory interface {
	// External returns the address of this cluster's external CIDR for the pod that has address in the consumer. The
	// error is ErrUnknown unless that consumer forwarded the pod here, and ErrNotYet while the pod has no such address.
	External(ctx context.Context, consumer string, address netip.Addr) (netip.Addr, error)
	// Home returns the address in this cluster of the consumer's pod that has address there. The error is ErrUnknown if
	// the address is outside the consumer's CIDRs, and ErrNotYet while the peering has no network.
	Home(ctx context.Context, consumer string, address netip.Addr) (netip.Addr, error)
	// Peered reports whether this cluster has a network with the consumer.
	Peered(ctx context.Context, consumer string) (bool, error)
	// PodCIDRs returns the CIDRs of this cluster's own pods. The error is ErrNotYet while there are none.
	PodCIDRs(ctx context.Context) ([]netip.Prefix, error)
}

// ServerConfig is the configuration of a Server.
type ServerConfig struct {
	Log logr.Logger
	// Address is HOST:PORT or :PORT.
	Address string
	// TLS authenticates the callers (see ServerTLS). With nil they are served in plaintext and not authenticated.
	TLS       *tls.Config
	Limits    Limits
	Directory Directory
	Metrics   *Metrics
}

// Limits are the limits of one consumer; of one address, if callers are not authenticated.
type Limits struct {
	// PerSecond is the maximum number of calls per second, Burst the maximum at once.
	PerSecond float64
	Burst     int
	// Concurrent is the maximum number of calls in flight.
	Concurrent int
	// Connections is the maximum number of open connections of an authenticated consumer.
	Connections int
}

// Server implements the calls of Liqo v0.x's IPAM that consumers make.
type Server struct{ cfg ServerConfig }

// NewServer returns a server, which does nothing before Run.
func NewServer(cfg ServerConfig) *Server { return &Server{cfg: cfg} }

// Run serves until ctx ends, and then returns nil.
func (s *Server) Run(ctx context.Context) error {
	ln, err := httpserve.Listen(ctx, s.cfg.Address, "--ipam-address")
	if err != nil {
		return fmt.Errorf("remote IPAM: %w", err)
	}
	if s.cfg.TLS == nil {
		s.cfg.Log.Info("Serving the remote IPAM without authentication: any client that reaches it gets the "+
			"addresses of every consumer's pods", "reason", "--ipam-insecure")
	}
	s.cfg.Log.Info("Serving the remote IPAM", "address", ln.Addr().String())
	return s.Serve(ctx, ln)
}

// Serve is Run with a listener, which it closes.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	server := grpc.NewServer(s.options()...)
	wire.RegisterServer(server, &service{
		directory: s.cfg.Directory, waiting: httpserve.NewShares(s.cfg.Limits.Concurrent / 2), trusting: s.cfg.TLS == nil,
	})

	served := make(chan error, 1)
	go func() { served <- server.Serve(netutil.LimitListener(ln, maxConnections)) }()
	select {
	case err := <-served:
		return fmt.Errorf("remote IPAM: serving on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	// GracefulStop returns no later than Stop closes all connections.
	grace := time.AfterFunc(shutdownGrace, server.Stop)
	defer grace.Stop()
	server.GracefulStop()
	// The error is ErrServerStopped if ctx ended before Serve.
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("remote IPAM: serving on %s: %w", ln.Addr(), err)
	}
	return nil
}

func (s *Server) options() []grpc.ServerOption {
	limits := newAllowances(s.cfg.Limits)
	options := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(s.observe, bounded, limits.admit),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.MaxHeaderListSize(2 * maxMessage),
		grpc.MaxConcurrentStreams(uint32(s.cfg.Limits.Concurrent)),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: maxIdle, MaxConnectionAge: maxAge, MaxConnectionAgeGrace: maxAgeGrace, Time: pingEvery, Timeout: pingTimeout,
		}),
	}
	if s.cfg.TLS != nil {
		options = append(options, grpc.Creds(&limitedTLS{
			TransportCredentials: credentials.NewTLS(s.cfg.TLS), consumers: httpserve.NewShares(s.cfg.Limits.Connections),
		}))
	}
	return options
}

func bounded(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return next(ctx, request)
}
