package wire

import (
	"context"
	"path"

	"google.golang.org/grpc"
)

// service is the name of Liqo's service on the wire: the name in the file without its package.
const service = "ipam"

// NewClient returns a client of the service with Liqo's name.
func NewClient(conn grpc.ClientConnInterface) IpamClient { return NewIpamClient(named{conn}) }

// RegisterServer registers the service with Liqo's name.
func RegisterServer(registrar grpc.ServiceRegistrar, server IpamServer) {
	description := Ipam_ServiceDesc
	description.ServiceName = service
	registrar.RegisterService(&description, server)
}

// named calls the methods of the service with Liqo's name.
type named struct{ grpc.ClientConnInterface }

func (n named) Invoke(ctx context.Context, method string, request, reply any, opts ...grpc.CallOption) error {
	return n.ClientConnInterface.Invoke(ctx, "/"+service+"/"+path.Base(method), request, reply, opts...)
}
