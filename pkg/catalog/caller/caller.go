package caller

import (
	"net"
	"net/http"
	"net/netip"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Caller is who makes a request. The zero Caller is a stranger.
type Caller struct {
	// User is as Kubernetes knows the caller; nil for a stranger.
	User user.Info
	// ByToken says that the caller gave a bearer token, which no browser sends by itself.
	ByToken bool
	// Certificate is what is wrong with the client certificate that a stranger showed; "" if nothing.
	Certificate string

	// organizations are those of the client certificate, if it was shown by one.
	organizations []string
}

// Known says that the caller is not a stranger.
func (c *Caller) Known() bool { return c.User != nil }

// Name is "" for a stranger.
func (c *Caller) Name() string {
	if c.User == nil {
		return ""
	}
	return c.User.GetName()
}

// prefixIPv6 is what one host has of the addresses of IPv6, at the least.
const prefixIPv6 = 64

// Host is where a request comes from, as far as allowances are concerned: an address, or of IPv6 its network, because one
// host has all of it. Headers that proxies add are not believed.
func Host(r *http.Request) string { return HostOf(r.RemoteAddr) }

// HostOf is the host of an address with a port.
func HostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if addr = addr.Unmap(); addr.Is6() {
		if prefix, err := addr.WithZone("").Prefix(prefixIPv6); err == nil {
			return prefix.String()
		}
	}
	return addr.String()
}
