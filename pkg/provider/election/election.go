// Package election has the leader elections of a virtual kubelet: one for the kubelet of the node (Run), and one for
// the reflection of everything except pods (RunReflection).
package election

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	liqoelection "github.com/liqotech/liqo/pkg/leaderelection"
)

// reflectionLeaseName is the lease of Liqo's second election, which one of the virtual kubelets of a tenant namespace
// holds: with several VirtualNodes on the same remote cluster, only one reflects objects other than pods
// (cmd/virtual-kubelet/root.leaderElectorName).
const reflectionLeaseName = "virtual-kubelet-leader-election"

// Config is shared by both elections.
type Config struct {
	Log logr.Logger
	// Identity identifies this replica. Namespace is the namespace of the leases.
	Identity, Namespace string
	// Serving reports whether the replica serves the pods of the node. Until then, the lease shows that it is
	// connecting.
	Serving func() bool
	// Answered returns the time of the last answer of the remote cluster to this replica; zero if unknown.
	Answered func() time.Time
	Times
}

// Times are the times of a lease.
type Times struct{ Duration, RenewDeadline, RetryPeriod time.Duration }

// Run waits for the lease of the node, which makes one replica at a time the virtual kubelet. Then it runs work, and
// releases the lease once work has returned. It returns nil if ctx ended first, the error of work, or an error if the
// lease was lost; then the context of work has ended too.
//
// Liqo's own (leaderelection.Blocking) exits the process when the lease is lost, and releases the lease while the
// process is still working.
func (c *Config) Run(ctx context.Context, node string, client kubernetes.Interface, events record.EventBroadcaster,
	work func(context.Context) error,
) error {
	log := c.Log.WithValues("lease", node)
	elected := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: node,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Name: node, Namespace: c.Namespace},
			Client:    leases{client.CoordinationV1(), c.Identity, c.Serving, c.Answered},
			LockConfig: resourcelock.ResourceLockConfig{
				Identity:      c.Identity,
				EventRecorder: events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: c.Identity}),
			},
		},
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(elected) },
			OnStoppedLeading: func() {},
			OnNewLeader:      func(leader string) { log.Info("Leader elected", "leader", leader) },
		},
		LeaseDuration:   c.Duration,
		RenewDeadline:   c.RenewDeadline,
		RetryPeriod:     c.RetryPeriod,
		ReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("electing the virtual kubelet of node %q: %w", node, err)
	}

	// The lease outlives ctx: it is released once all work under it has stopped.
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		elector.Run(holding)
	}()
	defer func() {
		release()
		<-stopped
	}()

	log.Info("Waiting to be elected")
	select {
	case <-ctx.Done():
		return nil
	case <-elected:
	}
	log.Info("Elected")
	return runUntilLost(ctx, stopped, fmt.Errorf("lost the lease %s/%s", c.Namespace, node), work)
}

// runUntilLost runs work, and ends its context with errLost once lost is closed.
func runUntilLost(ctx context.Context, lost <-chan struct{}, errLost error, work func(context.Context) error) error {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1)
	go func() { done <- work(working) }()

	select {
	case err := <-done:
		return err
	case <-lost:
		stop(errLost)
		<-done //nolint:errcheck // Why work ended is that the lease was lost.
		return errLost
	}
}

// RunReflection runs in Liqo's second election until ctx ends, and calls resync when it wins: the reflectors of this
// replica have skipped all earlier events. Liqo's reflectors ask leaderelection.IsLeader(), a package variable that
// only an elector made by leaderelection.Init sets. Liqo's leaderelection.Run panics when the lease is lost; here that
// is an error.
func (c *Config) RunReflection(ctx context.Context, home *rest.Config, events record.EventBroadcaster, resync func() error) error {
	elector, err := liqoelection.Init(&liqoelection.Opts{
		PodInfo:           liqoelection.PodInfo{PodName: c.Identity, Namespace: c.Namespace},
		LeaderElectorName: reflectionLeaseName,
		LeaseDuration:     c.Duration,
		RenewDeadline:     c.RenewDeadline,
		RetryPeriod:       c.RetryPeriod,
		InitCallback: func() {
			if err := resync(); err != nil {
				c.Log.Error(err, "Cannot enqueue all objects")
				return
			}
			c.Log.Info("Elected to reflect all resources except pods")
		},
	}, rest.CopyConfig(home), events)
	if err != nil {
		return fmt.Errorf("electing the virtual kubelet that reflects all resources except pods: %w", err)
	}
	elector.Run(ctx)
	if ctx.Err() == nil {
		return fmt.Errorf("lost the lease %s/%s", c.Namespace, reflectionLeaseName)
	}
	return nil
}
