package packets

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Answer is the answer to a probe.
type Answer struct {
	// From is the sender's address, as the namespace sees it. It is not valid if no answer arrived.
	From netip.Addr
	// Arrived is whether the called port accepted the connection. If not, From discarded the probe because of its TTL.
	Arrived bool
}

// Probe connects to a TCP port, like tcptraceroute: at most ttl-1 hops forward its packets. If ctx ends first, the
// answer is empty.
func (n *Namespace) Probe(ctx context.Context, to netip.AddrPort, ttl int) (answer Answer, err error) {
	err = n.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, ttl),
			unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1),
			// No packet is sent after the end of the probe.
			unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		)
		if err != nil {
			return err
		}
		err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
		if err != nil && !errors.Is(err, unix.EINPROGRESS) {
			return err
		}
		answer, err = outcome(ctx, fd, to.Addr())
		return err
	})
	if err != nil {
		return Answer{}, fmt.Errorf("probe of %s with TTL %d: %w", to, ttl, err)
	}
	return answer, nil
}

// pollMilliseconds is how late a probe may notice that its context has ended.
const pollMilliseconds = 20

// outcome waits for the result of a connection attempt.
func outcome(ctx context.Context, fd int, to netip.Addr) (Answer, error) {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for {
		if ctx.Err() != nil {
			return Answer{}, nil
		}
		ready, err := unix.Poll(poll, pollMilliseconds)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return Answer{}, err
		}
		if err == nil && ready > 0 {
			break
		}
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	switch errno := unix.Errno(code); {
	case err != nil:
		return Answer{}, err
	case errno == 0:
		return Answer{From: to, Arrived: true}, nil
	case errno == unix.EHOSTUNREACH: // The kernel returns this for "time exceeded", too.
		from, err := offender(fd)
		return Answer{From: from}, err
	default:
		return Answer{}, errno
	}
}

// sizeOfExtendedErr is the size of the kernel's struct sock_extended_err. The address of the sender follows it (ip(7)).
const sizeOfExtendedErr = 16

// offender reads the sender of "time exceeded" from the error queue of a socket.
func offender(fd int) (netip.Addr, error) {
	control := make([]byte, 512)
	_, length, _, _, err := unix.Recvmsg(fd, make([]byte, 512), control, unix.MSG_ERRQUEUE)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("error queue: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:length])
	if err != nil {
		return netip.Addr{}, err
	}
	for _, m := range messages {
		isError := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR
		if !isError || len(m.Data) < sizeOfExtendedErr+unix.SizeofSockaddrInet4 {
			continue
		}
		const timeExceeded = 11 // RFC 792
		errno, origin, kind := binary.NativeEndian.Uint32(m.Data), m.Data[4], m.Data[5]
		if origin != unix.SO_EE_ORIGIN_ICMP || kind != timeExceeded {
			return netip.Addr{}, fmt.Errorf("%w by ICMP type %d of origin %d", unix.Errno(errno), kind, origin)
		}
		return netip.AddrFrom4([4]byte(m.Data[sizeOfExtendedErr+4 : sizeOfExtendedErr+8])), nil
	}
	return netip.Addr{}, errors.New("no route to the host")
}

// TimeExceeded returns the number of ICMP errors "time exceeded" that the namespace has sent: the TTL ended there, even
// if the address of the sender is translated later.
func (n *Namespace) TimeExceeded() (count int, err error) {
	err = n.Do(func() error {
		counters, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		count, err = counter(string(counters), "Icmp:", "OutTimeExcds")
		return err
	})
	return count, err
}

// counter returns a value of /proc/net/snmp, where a line with names precedes a line with values.
func counter(text, protocol, name string) (int, error) {
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != protocol {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i := range min(len(names), len(fields)) {
			if names[i] == name {
				return strconv.Atoi(fields[i])
			}
		}
	}
	return 0, fmt.Errorf("the kernel has no counter %s %s", protocol, name)
}

// LinkPackets returns how many packets a link of the namespace has received and sent.
func (n *Namespace) LinkPackets(name string) (received, sent uint64, err error) {
	link, err := n.links.LinkByName(name)
	if err != nil {
		return 0, 0, fmt.Errorf("link %s: %w", name, err)
	}
	of := link.Attrs().Statistics
	return of.RxPackets, of.TxPackets, nil
}

// Addresses returns the addresses of the namespace's links.
func (n *Namespace) Addresses() (addresses []netip.Addr, err error) {
	list, err := n.links.AddrList(nil, unix.AF_INET)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if address, ok := netip.AddrFromSlice(list[i].IP.To4()); ok {
			addresses = append(addresses, address)
		}
	}
	return addresses, nil
}
