package provider

import (
	"context"
	"fmt"

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

// reflectionLeaseName is the lease of Liqo's second election, held by one of the virtual kubelets of a tenant
// namespace: with several VirtualNodes on the same remote cluster, only one reflects what is not a pod
// (cmd/virtual-kubelet/root.leaderElectorName).
const reflectionLeaseName = "virtual-kubelet-leader-election"

// runElected waits for the lease of the node, of which one replica at a time is the virtual kubelet, runs work, and
// gives the lease back once work has returned. It returns nil if ctx ended first, the error of work, or an error if the
// lease was lost; then the context of work has ended too.
//
// Liqo's own (leaderelection.Blocking) exits the process when the lease is lost, and gives it back while still working.
func runElected(ctx context.Context, cfg *Config, client kubernetes.Interface, events record.EventBroadcaster,
	work func(context.Context) error,
) error {
	log := cfg.Log.WithValues("lease", cfg.Node.Name)
	elected := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: cfg.Node.Name,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Name: cfg.Node.Name, Namespace: cfg.TenantNamespace},
			Client:    client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{
				Identity:      cfg.PodName,
				EventRecorder: events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: cfg.PodName}),
			},
		},
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(elected) },
			OnStoppedLeading: func() {},
			OnNewLeader:      func(leader string) { log.Info("Leader elected", "leader", leader) },
		},
		LeaseDuration:   cfg.Lease.Duration,
		RenewDeadline:   cfg.Lease.RenewDeadline,
		RetryPeriod:     cfg.Lease.RetryPeriod,
		ReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("electing the virtual kubelet of node %q: %w", cfg.Node.Name, err)
	}

	// The lease outlives ctx: it is given back when nothing works under it any more.
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
	return runUntilLost(ctx, stopped, fmt.Errorf("lost the lease %s/%s", cfg.TenantNamespace, cfg.Node.Name), work)
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

// runReflectionElection takes part in Liqo's second election until ctx ends. Liqo's reflectors ask
// leaderelection.IsLeader(), a package variable that only an elector made by leaderelection.Init sets. Liqo's
// leaderelection.Run panics when the lease is lost; here that is an error.
func runReflectionElection(ctx context.Context, cfg *Config, events record.EventBroadcaster, resync func() error) error {
	elector, err := liqoelection.Init(&liqoelection.Opts{
		PodInfo:           liqoelection.PodInfo{PodName: cfg.PodName, Namespace: cfg.TenantNamespace},
		LeaderElectorName: reflectionLeaseName,
		LeaseDuration:     cfg.Lease.Duration,
		RenewDeadline:     cfg.Lease.RenewDeadline,
		RetryPeriod:       cfg.Lease.RetryPeriod,
		// What happened before this replica was the leader, its reflectors skipped.
		InitCallback: func() { logResync(cfg.Log, resync()) },
	}, rest.CopyConfig(cfg.Home), events)
	if err != nil {
		return fmt.Errorf("electing who reflects to %q: %w", cfg.ForeignCluster, err)
	}
	elector.Run(ctx)
	if ctx.Err() == nil {
		return fmt.Errorf("lost the lease %s/%s", cfg.TenantNamespace, reflectionLeaseName)
	}
	return nil
}

func logResync(log logr.Logger, err error) {
	if err != nil {
		log.Error(err, "Cannot look at all the objects again")
		return
	}
	log.Info("Leading the reflection of all but pods")
}
