// Command kube is a whole Kubernetes control plane in one binary: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler, chosen by the
// first argument. One binary instead of four halves the build time and lets the
// processes of several clusters share its pages.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	os.Exit(run(os.Args, os.Stderr))
}

// run starts the component named by args[1] with the arguments after it and
// returns the exit code of the process.
func run(args []string, stderr io.Writer) int {
	components := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllermanager.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}
	if len(args) < 2 {
		fmt.Fprintln(stderr, "usage: kube etcd|kube-apiserver|kube-controller-manager|kube-scheduler [flags]")
		return 2
	}
	name, rest := args[1], args[2:]
	if name == "etcd" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		if err := runEtcd(ctx, rest); err != nil {
			fmt.Fprintln(stderr, "etcd:", err)
			return 1
		}
		return 0
	}
	newCommand, ok := components[name]
	if !ok {
		fmt.Fprintf(stderr, "kube: no component %q\n", name)
		return 2
	}
	cmd := newCommand()
	cmd.SetArgs(rest)
	return cli.Run(cmd)
}
