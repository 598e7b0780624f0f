package ipam

import (
	"context"
	"net"
	"sync"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"k8s.io/utils/lru"
)

// rememberedCallers is how many callers' allowances are kept: those that called last.
const rememberedCallers = 4096

// allowances are what each caller may still ask.
type allowances struct {
	limits Limits

	mu       sync.Mutex
	byCaller *lru.Cache // By caller, *allowance; guarded by mu.
}

// allowance is that of one caller.
type allowance struct {
	calls    *rate.Limiter
	inFlight chan struct{}
}

func newAllowances(limits Limits) *allowances {
	return &allowances{limits: limits, byCaller: lru.New(rememberedCallers)}
}

// admit refuses a call that is one too many.
func (a *allowances) admit(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	mine := a.of(callerKey(ctx))
	if !mine.calls.Allow() {
		return nil, status.Error(codes.ResourceExhausted, "too many requests a second, try again later")
	}
	select {
	case mine.inFlight <- struct{}{}:
		defer func() { <-mine.inFlight }()
	default:
		return nil, status.Error(codes.ResourceExhausted, "too many requests at once, try again later")
	}
	return next(ctx, request)
}

func (a *allowances) of(caller string) *allowance {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.byCaller.Get(caller); ok {
		return known.(*allowance) //nolint:forcetypeassert // Nothing else is put in.
	}
	fresh := &allowance{
		calls:    rate.NewLimiter(rate.Limit(a.limits.PerSecond), a.limits.Burst),
		inFlight: make(chan struct{}, a.limits.Concurrent),
	}
	a.byCaller.Add(caller, fresh)
	return fresh
}

// callerKey is who calls: the consumer, or the host, where consumers are not authenticated.
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
