package httpserve

import (
	"net"
	"net/netip"

	"golang.org/x/net/netutil"
)

// The limits of connections of a listener that is passed to Run without limits of its own. An API server has one
// connection to a kubelet API for every log that it follows, and every exec.
const (
	connectionsOfHost = 512
	connections       = 1024
)

// prefixIPv6 is the length of the smallest IPv6 prefix that one host gets.
const prefixIPv6 = 64

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

// limited is a listener with limits.
type limited struct{ net.Listener }

// Limit limits the connections per host and in total. Over a host's limit a connection is closed at once, and refused
// is called if it is not nil; over the total limit it waits.
func Limit(ln net.Listener, ofHost, total int, refused func()) net.Listener {
	return limited{netutil.LimitListener(&fairListener{Listener: ln, hosts: NewShares(ofHost), refused: refused}, total)}
}

// fairListener limits the connections of each host.
type fairListener struct {
	net.Listener
	hosts   *Shares
	refused func()
}

func (l *fairListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if counted, ok := l.hosts.Conn(HostOf(conn.RemoteAddr().String()), conn); ok {
			return counted, nil
		}
		if l.refused != nil {
			l.refused()
		}
	}
}
