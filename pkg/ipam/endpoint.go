package ipam

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultPort is the port of Liqo v0.x's IPAM.
const DefaultPort = 6000

// ParseRemote reads the value of --remote-ipam, server=HOST[:PORT], where HOST is a DNS name, an IPv4 address, or an
// IPv6 address in brackets. It returns HOST:PORT. The error names the flag and the remedy.
func ParseRemote(value string) (string, error) {
	fault := func(remedy string) error { return fmt.Errorf("--remote-ipam=%s: %s", value, remedy) }
	server, ok := strings.CutPrefix(value, "server=")
	if !ok {
		return "", fault("use server=HOST[:PORT]")
	}
	host, port := server, strconv.Itoa(DefaultPort)
	switch {
	case strings.Count(server, ":") > 1 && !strings.HasPrefix(server, "["):
		return "", fault("put an IPv6 address in brackets, as in server=[2001:db8::1]:6000")
	case strings.HasPrefix(server, "[") && strings.HasSuffix(server, "]"):
		host = server[1 : len(server)-1]
	case strings.Contains(server, ":"):
		var err error
		if host, port, err = net.SplitHostPort(server); err != nil {
			return "", fault("use server=HOST[:PORT]")
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return "", fault("use a port from 1 to 65535")
	}
	if err := checkHost(host, strings.HasPrefix(server, "[")); err != "" {
		return "", fault(err)
	}
	return net.JoinHostPort(host, port), nil
}

// checkHost returns the remedy for an invalid host, "" if it is valid.
func checkHost(host string, bracketed bool) string {
	const remedy = "use a DNS name or an IP address as HOST"
	address, err := netip.ParseAddr(host)
	if bracketed && (err != nil || !address.Is6()) {
		return "use brackets only for an IPv6 address"
	}
	if err == nil {
		return ""
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return remedy
	}
	if last := name[strings.LastIndex(name, ".")+1:]; strings.Trim(last, "0123456789") == "" {
		return remedy // 10.0.0 and 10.0.0.256 were meant as addresses.
	}
	return ""
}
