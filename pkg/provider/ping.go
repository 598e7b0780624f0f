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

// ping records whether the virtual kubelet of a broker's node reaches the remote cluster over its own connection. The
// broker's own ping proves nothing here: it uses another certificate in memory and another network path. For a virtual
// kubelet with a Node of its own, Liqo's node provider pings.
type ping struct {
	// answered is the time of the last answer of the remote cluster; nil before the first.
	answered atomic.Pointer[time.Time]
	// off is true if pings are disabled: then the remote cluster always counts as reached.
	off atomic.Bool
}

// reached reports whether the remote cluster answers. After the last answer it stays true until a Node lease that is
// not renewed since then would have expired: Liqo does not renew the lease while pings fail.
func (p *ping) reached(node *NodeConfig) bool {
	if p.off.Load() {
		return true
	}
	last := p.last()
	return !last.IsZero() && time.Since(last) <= node.LeaseDuration+node.PingInterval
}

// last returns the time of the last answer of the remote cluster; zero if there is none, or pings are disabled.
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
	config.RateLimiter, config.QPS = nil, -1 // A ping does not wait for the rate limit of other requests.
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
			cfg.Log.Info("The remote cluster does not answer", "reason", untrusted.Text(err.Error()))
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// readyz asks the API server whether it is ready. An HTML page of a proxy does not count as an answer.
func readyz(ctx context.Context, client rest.Interface, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := client.Get().AbsPath("/readyz").DoRaw(ctx)
	if err == nil && string(body) != "ok" {
		err = errors.New("/readyz does not answer ok")
	}
	return err
}
