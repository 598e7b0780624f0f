// Command ipampeer is our side of the interoperation test with Liqo v0.9.4's IPAM (test/interop), which is of another
// module, with that version of Liqo.
//
//	ipampeer serve CERTIFICATES   serves the remote IPAM for consumer1, which has one pod, and prints its address
//	ipampeer ask HOST:PORT        asks as consumer1: reads "map IP" and "forget IP" from stdin, and prints what it learns
//
// CERTIFICATES is a directory with ca.pem, tls.crt and tls.key, or "" for plaintext. Both end with stdin.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: ipampeer serve CERTIFICATES | ipampeer ask HOST:PORT")
	}
	switch args[0] {
	case "serve":
		return serve(args[1])
	case "ask":
		return ask(args[1])
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// pods are those of consumer1: where the broker sees them, and their addresses in its external CIDR.
type pods map[netip.Addr]netip.Addr

func (p pods) External(_ context.Context, consumer string, address netip.Addr) (netip.Addr, error) {
	if external, ok := p[address]; ok && consumer == "consumer1" {
		return external, nil
	}
	return netip.Addr{}, ipam.ErrUnknown
}

func (p pods) Home(_ context.Context, _ string, address netip.Addr) (netip.Addr, error) {
	return address.Next(), nil
}

func (p pods) Peered(_ context.Context, consumer string) (bool, error) {
	return consumer == "consumer1", nil
}

func (p pods) PodCIDRs(context.Context) ([]netip.Prefix, error) {
	return []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, nil
}

func serve(certificates string) error {
	cfg := ipam.ServerConfig{
		Log: logr.Discard(), Metrics: ipam.NewMetrics(), Limits: ipam.Limits{PerSecond: 100, Burst: 100, Concurrent: 10, Connections: 10},
		Directory: pods{netip.MustParseAddr("10.35.7.1"): netip.MustParseAddr("10.70.0.4")},
	}
	if certificates != "" {
		var err error
		if cfg.TLS, err = serverTLS(certificates); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ipam.NewServer(cfg).Serve(ctx, ln)
}

func serverTLS(dir string) (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return ipam.ServerTLS(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil },
		func() (x509.VerifyOptions, bool) { return x509.VerifyOptions{Roots: roots}, true }), nil
}

// ask prints "IP ADDRESS" when an address is known, and "IP problem: ..." when it is not.
func ask(server string) error {
	var client *ipam.Client
	client = ipam.NewClient(ipam.ClientConfig{
		Log: logr.Discard(), Server: server, ClusterID: "consumer1", FirstRetry: 10 * time.Millisecond,
		Changed: func(ip string) {
			if address, known := client.Map(ip); known {
				fmt.Println(ip, address)
			} else if problem := client.Problem(ip); problem != nil {
				fmt.Println(ip, "problem:", strings.ReplaceAll(problem.Error(), "\n", " "))
			}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return client.Run(ctx) })
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch command, ip, _ := strings.Cut(lines.Text(), " "); command {
		case "map":
			client.Map(ip)
		case "forget":
			client.Forget(ip)
		}
	}
	cancel()
	return group.Wait()
}
