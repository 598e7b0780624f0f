package packets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace. It has no file name, so it ends when it is closed and no process is in it any more,
// even if the sandbox is killed.
type Namespace struct {
	file  *os.File
	links *netlink.Handle

	mu        sync.Mutex
	listeners []net.Listener
}

// newNamespace creates a network namespace with its loopback up.
func newNamespace() (*Namespace, error) {
	n := &Namespace{}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("new network namespace: %w", err)
		}
		var err error
		n.file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		return nil, err
	}
	err = n.Do(func() error {
		var err error
		if n.links, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		lo, err := n.links.LinkByName("lo")
		if err != nil {
			return err
		}
		return n.links.LinkSetUp(lo)
	})
	if err != nil {
		return nil, errors.Join(err, n.file.Close())
	}
	return n, nil
}

// onThread calls do on a new thread, which ends afterwards: changes to the thread have no effect elsewhere.
func onThread(do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		result <- do()
	}()
	return <-result
}

// FD is the namespace's file descriptor, valid until Close.
func (n *Namespace) FD() int { return int(n.file.Fd()) }

// Do calls do in the namespace. Goroutines that do starts are not in it.
func (n *Namespace) Do(do func() error) error {
	return onThread(func() error {
		if err := unix.Setns(n.FD(), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return do()
	})
}

// DialContext connects from the namespace to an IP address and port.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.Do(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// ForwardLoopback forwards a TCP port on the namespace's loopback to the same port on this process's loopback.
func (n *Namespace) ForwardLoopback(port int) error {
	address := fmt.Sprintf("127.0.0.1:%d", port)
	return n.Forward(address, address)
}

// Forward forwards a TCP address in the namespace to an address of this process's network.
func (n *Namespace) Forward(address, to string) error {
	return n.Do(func() error {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		n.mu.Lock()
		n.listeners = append(n.listeners, listener)
		n.mu.Unlock()
		go forward(listener, func() (net.Conn, error) { return net.Dial("tcp", to) })
		return nil
	})
}

// Expose forwards the connections that a listener of this process accepts to a TCP address in the namespace, until Close.
func (n *Namespace) Expose(listener net.Listener, to string) {
	n.mu.Lock()
	n.listeners = append(n.listeners, listener)
	n.mu.Unlock()
	go forward(listener, func() (net.Conn, error) { return n.DialContext(context.Background(), "tcp", to) })
}

// forward connects the connections that listener accepts with those that dial makes, until the listener is closed.
func forward(listener net.Listener, dial func() (net.Conn, error)) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			to, err := dial()
			if err != nil {
				return
			}
			defer to.Close()
			go func() {
				_, _ = io.Copy(to, from) // Either end may close.
				_ = to.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(from, to)
		}()
	}
}

// Close releases the namespace.
func (n *Namespace) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, listener := range n.listeners {
		_ = listener.Close()
	}
	n.links.Close()
	return n.file.Close()
}
