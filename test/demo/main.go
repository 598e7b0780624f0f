// Command demo shows a federation at work: pods created in a consumer cluster run at the providers that the broker
// chooses for them, and move when a provider fails.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// brokerNode is the name of the broker's Node.
const brokerNode = "liqo-broker"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	once := flags.Bool("once", false, "stop after the last step instead of staying up until Ctrl-C")
	name := flags.String("name", "demo", "name of the sandbox")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := sandbox.Up(ctx, sandbox.Options{
		Name: *name, Consumers: 1, Providers: len(cast()), BrokerNode: brokerNode, ProviderSlices: slices(), Catalog: true,
		Progress: func(format string, args ...any) { fmt.Fprintf(stdout, format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	status := s.Status()
	fmt.Fprintf(stdout, "up in %.1f s; %d processes, %.2f GB\n\n", status.BootSeconds, len(status.Processes), float64(status.Memory())/1e9)
	began := time.Now()
	err = open(ctx, s, stdout)
	if err == nil {
		err = newStory(s, stdout).run(ctx)
	}
	if err == nil {
		fmt.Fprintf(stdout, "\nThe demo took %.0f s.\n", time.Since(began).Seconds())
	}
	if err == nil && !*once {
		fmt.Fprintf(stdout, "\nThe federation stays up until Ctrl-C. Look around:\n")
		for _, c := range s.Clusters {
			fmt.Fprintf(stdout, "  kubectl --kubeconfig %s get pods -A -o wide\n", status.Kubeconfigs[c.Name])
		}
		fmt.Fprintf(stdout, "  https://%s/\n", s.CatalogAddress())
		<-ctx.Done()
	}
	fmt.Fprintln(stdout, "stopping the federation")
	if downErr := s.Down(); err == nil {
		err = downErr
	}
	return err
}

// open prints the address of the dashboard and the tokens for it.
func open(ctx context.Context, s *sandbox.Sandbox, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	broker := s.Cluster(sandbox.Broker)
	operator, err := broker.Account(ctx, sandbox.BrokerComponent, "demo-operator", "cluster-admin")
	if err != nil {
		return err
	}
	consumer, err := broker.AccountOfConsumer(ctx, sandbox.Consumer(1), "demo-person")
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "The dashboard: https://%s/ (with a self-signed certificate)\n", s.CatalogAddress())
	fmt.Fprintf(stdout, "Sign in there as the operator with the token\n%s\nor as a user of %s with\n%s\n\n", operator,
		sandbox.Consumer(1), consumer)
	return nil
}
