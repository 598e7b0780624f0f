package ipam

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/capacitorset/liqo-broker-vk/pkg/auth"
	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
)

// rememberedCallers is the maximum number of callers whose recent calls are remembered for the limit. The most recent
// callers are kept.
const rememberedCallers = 4096

type allowances struct {
	calls    *auth.Limiter
	inFlight *httpserve.Shares
}

func newAllowances(limits Limits) *allowances {
	return &allowances{
		calls:    auth.NewLimiter(limits.PerSecond, limits.Burst, rememberedCallers),
		inFlight: httpserve.NewShares(limits.Concurrent),
	}
}

// admit rejects a call that exceeds a limit of its caller.
func (a *allowances) admit(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	caller := callerKey(ctx)
	if a.calls.Take(caller, 1, time.Now()) > 0 {
		return nil, status.Error(codes.ResourceExhausted, "too many requests per second, try again later")
	}
	release, ok := a.inFlight.Take(caller)
	if !ok {
		return nil, status.Error(codes.ResourceExhausted, "too many concurrent requests, try again later")
	}
	defer release()
	return next(ctx, request)
}

// callerKey returns the calling consumer, or its host if consumers are not authenticated.
func callerKey(ctx context.Context) string {
	if consumer, err := consumerOf(ctx); err == nil {
		return "consumer " + consumer
	}
	caller, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	host, _, err := net.SplitHostPort(caller.Addr.String())
	if err != nil {
		return caller.Addr.String()
	}
	return "host " + host
}

// limitedTLS is TLS with a limit of connections for each consumer.
type limitedTLS struct {
	credentials.TransportCredentials
	consumers *httpserve.Shares
}

func (l *limitedTLS) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, who, err := l.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	consumer, err := consumerFrom(who)
	if err != nil {
		consumer = "" // Its first call is answered with the reason, which costs no more than the handshake did.
	}
	counted, ok := l.consumers.Conn(consumer, conn)
	if !ok {
		return nil, nil, fmt.Errorf("consumer %q has too many connections", consumer)
	}
	return counted, who, nil
}

// Clone implements credentials.TransportCredentials. gRPC never clones a server's credentials to change them.
func (l *limitedTLS) Clone() credentials.TransportCredentials { return l }
