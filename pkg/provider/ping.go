package provider

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// ping knows whether a virtual kubelet of a broker's node reaches the remote cluster by its own connection. The broker's has
// another certificate in memory, and another network path. A virtual kubelet with a Node of its own has Liqo's node provider ping.
type ping struct {
	// answered is when the remote cluster last answered; nil before that.
	answered atomic.Pointer[time.Time]
	// off is set if there are no pings: then the remote cluster counts as reached.
	off atomic.Bool
}

// reached reports whether the remote cluster answers. As with the lease of a Node that is not renewed while pings fail, it does
// until that lease would have expired.
func (p *ping) reached(node *NodeConfig) bool {
	if p.off.Load() {
		return true
	}
	last := p.last()
	return !last.IsZero() && time.Since(last) <= node.LeaseDuration+node.PingInterval
}

// last returns when the remote cluster last answered; zero if it has not, or is not pinged.
func (p *ping) last() time.Time {
	if last := p.answered.Load(); last != nil {
		return *last
	}
	return time.Time{}
}

// run pings every PingInterval until ctx ends.
func (p *ping) run(ctx context.Context, cfg *Config, remote *rest.Config) error {
	if cfg.Node.PingInterval == 0 {
		p.off.Store(true)
		return nil
	}
	config := rest.CopyConfig(remote)
	config.RateLimiter, config.QPS = nil, -1 // A ping does not wait for the turns of other requests.
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	tick := time.NewTicker(cfg.Node.PingInterval)
	defer tick.Stop()
	failing := false
	for {
		err := readyz(ctx, client.RESTClient(), cfg.Node.PingTimeout)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			now := time.Now()
			p.answered.Store(&now)
			if failing {
				cfg.Log.Info("The remote cluster answers again")
			}
		case !failing:
			cfg.Log.Info("The remote cluster does not answer", "because", untrusted.Text(err.Error()))
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// readyz asks the API server whether it is ready. A page of a proxy is no answer.
func readyz(ctx context.Context, client rest.Interface, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := client.Get().AbsPath("/readyz").DoRaw(ctx)
	if err == nil && string(body) != "ok" {
		err = errors.New("/readyz does not answer ok")
	}
	return err
}
