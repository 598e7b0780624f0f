// Command demo shows a federation at work: pods created in a consumer cluster
// run, through the broker cluster, in provider clusters.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sort"
	"syscall"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	namespace = "demo"
	replicas  = 12
	// deadline bounds how long the pods may take to run.
	deadline = 2 * time.Minute
)

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
	once := flags.Bool("once", false, "end after the table instead of staying up until Ctrl-C")
	name := flags.String("name", "demo", "name of the sandbox")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := sandbox.Up(ctx, sandbox.Options{
		Name: *name, Consumers: 1, Providers: 3, Progress: func(format string, args ...any) { fmt.Fprintf(stdout, format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	status := s.Status()
	fmt.Fprintf(stdout, "up in %.1f s; %d processes, %.2f GB\n\n", status.BootSeconds, len(status.Processes), float64(status.Memory())/1e9)
	err = show(ctx, s, stdout)
	if err == nil && !*once {
		fmt.Fprintf(stdout, "\nThe federation stays up until Ctrl-C. Look around:\n")
		for _, c := range s.Clusters {
			fmt.Fprintf(stdout, "  kubectl --kubeconfig %s get pods -A -o wide\n", status.Kubeconfigs[c.Name])
		}
		<-ctx.Done()
	}
	fmt.Fprintln(stdout, "taking the federation down")
	if downErr := s.Down(); err == nil {
		err = downErr
	}
	return err
}

// show deploys in the consumer and prints the way of every pod.
func show(ctx context.Context, s *sandbox.Sandbox, out io.Writer) error {
	consumer, broker := s.Cluster(sandbox.Consumer(1)), s.Cluster(sandbox.Broker)
	if err := consumer.Offload(ctx, namespace); err != nil {
		return err
	}
	if err := broker.Offload(ctx, consumer.RemoteNamespace(namespace)); err != nil {
		return err
	}
	fmt.Fprintf(out, "creating a Deployment of %d replicas in %s\n", replicas, consumer.Name)
	if err := consumer.Client.Create(ctx, deployment()); err != nil {
		return err
	}
	ways, err := watchPods(ctx, s)
	if err != nil {
		return err
	}
	return printWays(out, ways)
}

// way is how a pod got where it runs.
type way struct {
	pod                                string
	consumerNode, brokerNode, provider string
	toRunning                          time.Duration
}

// watchPods follows the pods from the consumer's side until all of them run.
func watchPods(ctx context.Context, s *sandbox.Sandbox) ([]way, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	consumer := s.Cluster(sandbox.Consumer(1))
	seen := map[string]way{}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for len(seen) < replicas {
		var list corev1.PodList
		if err := consumer.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			p := &list.Items[i]
			if _, ok := seen[p.Name]; ok || p.Status.Phase != corev1.PodRunning {
				continue
			}
			// Creation times have whole seconds, so the figure is up to a second too long.
			w := way{pod: p.Name, consumerNode: p.Spec.NodeName, toRunning: time.Since(p.CreationTimestamp.Time)}
			if err := follow(ctx, s, p.Name, &w); err != nil {
				return nil, err
			}
			seen[p.Name] = w
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d pods run: %w", len(seen), replicas, ctx.Err())
		case <-tick.C:
		}
	}
	out := make([]way, 0, len(seen))
	for _, w := range seen {
		out = append(out, w)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].pod < out[j].pod })
	return out, nil
}

// follow reads from the broker and the providers where a pod really runs.
func follow(ctx context.Context, s *sandbox.Sandbox, pod string, w *way) error {
	atBroker := s.Cluster(sandbox.Consumer(1)).RemoteNamespace(namespace)
	broker := s.Cluster(sandbox.Broker)
	var p corev1.Pod
	if err := broker.Client.Get(ctx, client.ObjectKey{Namespace: atBroker, Name: pod}, &p); err != nil {
		return err
	}
	w.brokerNode = p.Spec.NodeName
	for _, c := range s.Clusters {
		if c.Role != sandbox.RoleProvider {
			continue
		}
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: broker.RemoteNamespace(atBroker), Name: pod}, &p); err == nil {
			w.provider = c.Name + "/" + p.Spec.NodeName
		}
	}
	return nil
}

func printWays(out io.Writer, ways []way) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "POD\tNODE IN CONSUMER\tNODE IN BROKER\tRUNS AT\tTO RUNNING")
	for _, p := range ways {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.1f s\n", p.pod, p.consumerNode, p.brokerNode, p.provider, p.toRunning.Seconds())
	}
	return w.Flush()
}

func deployment() *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	n := int32(replicas)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}},
			},
		},
	}
}
