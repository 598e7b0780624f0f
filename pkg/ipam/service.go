package ipam

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam/wire"
)

// The errors of a Directory.
var (
	// ErrUnknown means that the address does not belong to a pod of the consumer.
	ErrUnknown = errors.New("not the address of a pod of this consumer")
	// ErrNotYet means that the address is not mapped yet.
	ErrNotYet = errors.New("not mapped yet")
)

// held is the time that a call waits for an address that is not mapped yet; firstCheck and lastCheck bound the time
// between two checks. A caller that had to retry would learn the address later. held is less than shutdownGrace.
const (
	held       = time.Second
	firstCheck = 20 * time.Millisecond
	lastCheck  = 200 * time.Millisecond
)

type service struct {
	wire.UnimplementedIpamServer
	directory Directory
	// waiting are the waiting calls, by caller: at most half of the calls that it may have in flight. Others are
	// answered at once.
	waiting *httpserve.Shares
	// trusting is true if callers are not authenticated.
	trusting bool
}

// MapEndpointIP implements wire.IpamServer. It is idempotent: Liqo keeps the mapping, the server does not.
func (s *service) MapEndpointIP(ctx context.Context, request *wire.MapRequest) (*wire.MapResponse, error) {
	address, err := s.accept(ctx, request.GetClusterID(), request.GetIp())
	if err != nil {
		return nil, err
	}
	external, err := s.external(ctx, request.GetClusterID(), address)
	if err != nil {
		return nil, refusal(ctx, err)
	}
	return &wire.MapResponse{Ip: external.String()}, nil
}

// external asks the Directory until the address is mapped, for at most held.
func (s *service) external(ctx context.Context, consumer string, address netip.Addr) (netip.Addr, error) {
	external, err := s.directory.External(ctx, consumer, address)
	if !errors.Is(err, ErrNotYet) {
		return external, err
	}
	done, ok := s.waiting.Take(callerKey(ctx))
	if !ok {
		return external, err
	}
	defer done()
	until := time.Now().Add(held)
	for delay := firstCheck; errors.Is(err, ErrNotYet) && time.Now().Before(until); delay = min(2*delay, lastCheck) {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return external, ctx.Err()
		}
		external, err = s.directory.External(ctx, consumer, address)
	}
	return external, err
}

// UnmapEndpointIP implements wire.IpamServer. It changes nothing: a mapping is an IP object of Liqo, which other
// clients use too, and which is deleted with its pod. Its answer does not depend on whether the address is known.
func (s *service) UnmapEndpointIP(ctx context.Context, request *wire.UnmapRequest) (*wire.UnmapResponse, error) {
	if _, err := s.accept(ctx, request.GetClusterID(), request.GetIp()); err != nil {
		return nil, err
	}
	return &wire.UnmapResponse{}, nil
}

func (s *service) GetHomePodIP(ctx context.Context, request *wire.GetHomePodIPRequest) (*wire.GetHomePodIPResponse, error) {
	address, err := s.accept(ctx, request.GetClusterID(), request.GetIp())
	if err != nil {
		return nil, err
	}
	home, err := s.directory.Home(ctx, request.GetClusterID(), address)
	if err != nil {
		return nil, refusal(ctx, err)
	}
	return &wire.GetHomePodIPResponse{HomeIP: home.String()}, nil
}

// BelongsToPodCIDR implements wire.IpamServer. The request names no cluster, because every peer knows the pod CIDRs.
// Callers that are not peers are rejected, even with a client certificate of this cluster.
func (s *service) BelongsToPodCIDR(ctx context.Context, request *wire.BelongsRequest) (*wire.BelongsResponse, error) {
	if !s.trusting {
		who, err := consumerOf(ctx)
		if err != nil {
			return nil, err
		}
		if peered, err := s.directory.Peered(ctx, who); err != nil {
			return nil, refusal(ctx, err)
		} else if !peered {
			return nil, status.Error(codes.PermissionDenied, "the client certificate does not belong to a consumer")
		}
	}
	address, err := parseAddress(request.GetIp())
	if err != nil {
		return nil, err
	}
	cidrs, err := s.directory.PodCIDRs(ctx)
	if err != nil {
		return nil, refusal(ctx, err)
	}
	for _, cidr := range cidrs {
		if cidr.Contains(address) {
			return &wire.BelongsResponse{Belongs: true}, nil
		}
	}
	return &wire.BelongsResponse{}, nil
}

// accept returns the address of a request, or an error if the caller is not the cluster in the request.
func (s *service) accept(ctx context.Context, cluster, address string) (netip.Addr, error) {
	if len(validation.IsDNS1123Label(cluster)) > 0 { // Liqo checks it in the same way: apis/core/v1beta1.ClusterID.
		return netip.Addr{}, status.Error(codes.InvalidArgument, "clusterID is not a valid cluster id")
	}
	if !s.trusting {
		who, err := consumerOf(ctx)
		if err != nil {
			return netip.Addr{}, err
		}
		if who != cluster {
			return netip.Addr{}, status.Error(codes.PermissionDenied, "the client certificate was not issued to the cluster of the request")
		}
	}
	return parseAddress(address)
}

func parseAddress(text string) (netip.Addr, error) {
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" {
		return netip.Addr{}, status.Error(codes.InvalidArgument, "ip is not an IP address")
	}
	return address.Unmap(), nil
}

// refusal returns the error for the caller: it does not reveal why a Directory could not be read.
func refusal(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ErrUnknown):
		return status.Error(codes.NotFound, ErrUnknown.Error())
	case errors.Is(err, ErrNotYet):
		return status.Error(codes.Unavailable, ErrNotYet.Error()+", try again")
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	}
	return &hidden{cause: err}
}

// hidden is an error whose cause is logged, but not sent to the caller.
type hidden struct{ cause error }

func (h *hidden) Error() string { return h.cause.Error() }

func (h *hidden) Unwrap() error { return h.cause }

// GRPCStatus is called by status.FromError.
func (h *hidden) GRPCStatus() *status.Status { return status.New(codes.Internal, "internal error") }
