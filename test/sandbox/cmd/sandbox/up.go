package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

func upCommand(name *string) *cobra.Command {
	opts := sandbox.Options{}
	var detach bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a federation and keep it up until Ctrl-C or sandbox down",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.Name = *name
			if err := opts.Validate(); err != nil {
				return err
			}
			if detach {
				return upDetached(cmd)
			}
			return up(cmd, opts)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&opts.Consumers, "consumers", 1, "number of consumer clusters")
	flags.IntVar(&opts.Providers, "providers", 3, "number of provider clusters")
	flags.BoolVar(&opts.Networking, "networking", false, "also run Liqo's networking controllers (addresses and remapping, no tunnels)")
	flags.BoolVar(&opts.Packets, "packets", false,
		"run Liqo's gateways and fabric, and pods with image "+sandbox.ImageWeb+", in network namespaces; needs root")
	flags.BoolVar(&opts.Containers, "containers", false,
		"give each cluster a real node: kubelet, containerd and kube-proxy in network namespaces; needs root and Debian's packages "+
			"containerd, runc, containernetworking-plugins, busybox-static and nftables")
	flags.StringVar(&opts.Kubernetes, "kubernetes", "",
		"version of Kubernetes: one of "+strings.Join(sandbox.KubernetesVersions(), ", ")+"; the first is the default")
	flags.StringArrayVar(&opts.APIServerArgs, "api-server-arg", nil, "an argument for all API servers; may be repeated")
	flags.StringVar(&opts.Liqo, "liqo", "",
		"version of Liqo: "+sandbox.LiqoVersion+" (default) or "+sandbox.LiqoV11Version)
	flags.StringVar(&opts.Image, "image", sandbox.ImageOurs, "image of the virtual kubelets: "+sandbox.ImageOurs+" or "+sandbox.ImageStock)
	flags.StringVar(&opts.BrokerNode, "broker-node", "", "run the broker; its node with this name represents all providers")
	flags.BoolVar(&opts.RemoteIPAM, "remote-ipam", false,
		"run the broker's remote IPAM; consumers get the addresses of pods behind the broker from it")
	flags.BoolVar(&opts.Catalog, "catalog", false, "run the catalog in addition to the broker")
	flags.StringArrayVar(&opts.CatalogArgs, "catalog-arg", nil,
		"an argument for the catalog, such as --catalog-arg=--read-auth=true; may be repeated")
	flags.StringArrayVar(&opts.BrokerKubeletArgs, "broker-kubelet-arg", nil,
		"an argument for the virtual kubelets of the broker's node; may be repeated")
	flags.StringArrayVar(&opts.ConsumerArgs, "consumer-arg", nil,
		"an argument for the consumers' virtual kubelets, such as --consumer-arg=--direct-traffic=true; may be repeated")
	flags.StringArrayVar(&opts.DirectNetworks, "direct-network", nil, "connect the networks of CONSUMER:PROVIDER; may be repeated")
	flags.StringArrayVar(&opts.BrokerArgs, "broker-arg", nil,
		"an argument for the broker, such as --broker-arg=--failover-after=20s; may be repeated")
	flags.DurationVar(&opts.Latency, "latency", 0, "additional round-trip time of requests to another cluster, such as 100ms")
	flags.BoolVar(&detach, "detach", false, "run in the background: return once the federation is up; stop it with sandbox down")
	return cmd
}

func up(cmd *cobra.Command, opts sandbox.Options) error {
	out := cmd.ErrOrStderr()
	opts.Progress = func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	s, err := sandbox.Up(cmd.Context(), opts)
	if err != nil {
		return err
	}
	status := s.Status()
	fmt.Fprintf(cmd.OutOrStdout(), "up in %.1f s; %d processes, %.2f GB; kubeconfigs: sandbox kubeconfig NAME\n",
		status.BootSeconds, len(status.Processes), float64(status.Memory())/1e9)
	select {
	case <-cmd.Context().Done():
	case <-s.DownRequested():
	}
	fmt.Fprintln(out, "stopping the sandbox")
	return s.Down()
}

// upDetached runs this command again without --detach, in a new session, and waits until its sandbox is ready.
func upDetached(cmd *cobra.Command) error {
	var args []string
	for _, a := range os.Args[1:] {
		if a != "--detach" && a != "--detach=true" {
			args = append(args, a)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	name := cmd.Flag("name").Value.String()
	logPath := filepath.Join(os.TempDir(), fmt.Sprintf("sandbox-%s-%d.log", name, os.Getpid()))
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	defer log.Close()
	child := exec.Command(self, args...)
	child.Stdout, child.Stderr = log, log
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	fmt.Fprintf(cmd.ErrOrStderr(), "starting in the background; progress in %s\n", logPath)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			text, _ := os.ReadFile(logPath)
			return fmt.Errorf("the sandbox did not start: %w\n%s", err, text)
		case <-cmd.Context().Done():
			return errors.Join(cmd.Context().Err(), child.Process.Signal(syscall.SIGTERM))
		case <-tick.C:
			if state, err := sandbox.ReadState(name); err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "up in %.1f s\n", state.BootSeconds)
				return nil
			}
		}
	}
}

func downCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop a sandbox, and clean up after sandboxes whose owner process was killed",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			swept, err := sandbox.Sweep()
			for _, s := range swept {
				fmt.Fprintf(cmd.OutOrStdout(), "cleaned up after sandbox %s, whose owner was killed\n", s)
			}
			if err != nil {
				return err
			}
			return down(cmd, *name)
		},
	}
}

// down asks the owner to end, and waits until it has ended.
func down(cmd *cobra.Command, name string) error {
	if !sandbox.Alive(name) {
		return sandbox.Remove(name)
	}
	if _, err := sandbox.Call(cmd.Context(), name, "down", url.Values{}); err != nil {
		// The owner is still starting, or hangs: its processes end with it.
		if err := sandbox.KillOwner(name); err != nil {
			return err
		}
		return sandbox.Remove(name)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for sandbox.Alive(name) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("sandbox %q has not stopped: %w", name, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}
