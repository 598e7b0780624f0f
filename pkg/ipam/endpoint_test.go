package ipam

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseRemote(t *testing.T) {
	for what, c := range map[string]struct{ value, want string }{
		"a name gets Liqo's port":           {"server=broker.example.com", "broker.example.com:6000"},
		"a name with a port":                {"server=broker.example.com:443", "broker.example.com:443"},
		"a name may end with a dot":         {"server=broker.example.com.:1", "broker.example.com.:1"},
		"a name of one label":               {"server=broker", "broker:6000"},
		"a name may begin with digits":      {"server=1and1.example", "1and1.example:6000"},
		"an IPv4 address":                   {"server=10.0.0.1", "10.0.0.1:6000"},
		"an IPv4 address with a port":       {"server=10.0.0.1:65535", "10.0.0.1:65535"},
		"an IPv6 address in brackets":       {"server=[2001:db8::1]", "[2001:db8::1]:6000"},
		"an IPv6 address and a port":        {"server=[2001:db8::1]:7000", "[2001:db8::1]:7000"},
		"capital letters are DNS names too": {"server=Broker.Example", "Broker.Example:6000"},
	} {
		t.Run(what, func(t *testing.T) {
			got, err := ParseRemote(c.value)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
	for what, c := range map[string]struct{ value, remedy string }{
		"nothing":                        {"", "use server=HOST[:PORT]"},
		"no key":                         {"10.0.0.1:6000", "use server=HOST[:PORT]"},
		"another key":                    {"address=10.0.0.1", "use server=HOST[:PORT]"},
		"no host":                        {"server=", "use a DNS name or an IP address"},
		"no host but a port":             {"server=:6000", "use a DNS name or an IP address"},
		"an empty port":                  {"server=broker:", "use a port from 1 to 65535"},
		"port 0":                         {"server=broker:0", "use a port from 1 to 65535"},
		"a port too high":                {"server=broker:65536", "use a port from 1 to 65535"},
		"a port that is no number":       {"server=broker:grpc", "use a port from 1 to 65535"},
		"a port with a sign":             {"server=broker:+6000", "use a port from 1 to 65535"},
		"an IPv6 address without":        {"server=2001:db8::1", "brackets"},
		"an IPv6 address half bracketed": {"server=[2001:db8::1", "use server=HOST[:PORT]"},
		"an IPv4 address in brackets":    {"server=[10.0.0.1]", "use brackets only for an IPv6 address"},
		"a name in brackets":             {"server=[broker]:1", "use brackets only for an IPv6 address"},
		"an address of three parts":      {"server=10.0.0", "use a DNS name or an IP address"},
		"an address out of range":        {"server=10.0.0.256", "use a DNS name or an IP address"},
		"a URL":                          {"server=https://broker", "use a"},
		"an underscore":                  {"server=the_broker", "use a DNS name or an IP address"},
		"a space":                        {"server=the broker", "use a DNS name or an IP address"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := ParseRemote(c.value)
			require.ErrorContains(t, err, "--remote-ipam="+c.value+": ")
			require.ErrorContains(t, err, c.remedy)
		})
	}
}

// Every accepted endpoint can be dialed, and stays the same after formatting and parsing.
func TestParseRemoteIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var address netip.Addr
		if rapid.Bool().Draw(t, "v6") {
			address = netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address")))
		} else {
			address = netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address")))
		}
		port := rapid.Uint16Min(1).Draw(t, "port")
		first, err := ParseRemote("server=" + netip.AddrPortFrom(address, port).String())
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseRemote("server=" + first)
		if err != nil || again != first {
			t.Fatal(again, err)
		}
		host, gotPort, err := net.SplitHostPort(first)
		if err != nil || host != address.String() || gotPort != fmt.Sprint(port) {
			t.Fatal(first)
		}
	})
}

func FuzzParseRemote(f *testing.F) {
	f.Add("server=[::1]:1")
	f.Add("server=a:b:c")
	f.Fuzz(func(t *testing.T, value string) {
		got, err := ParseRemote(value)
		if err != nil {
			return
		}
		if host, port, err := net.SplitHostPort(got); err != nil || host == "" || port == "" {
			t.Fatalf("%q became %q", value, got)
		}
	})
}
