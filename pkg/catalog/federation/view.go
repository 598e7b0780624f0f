package federation

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/google/btree"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/follow"
)

// View is what is known of the federation. All its methods may be called at any time, by many at once.
type View struct {
	cache  cache.Cache
	cfg    Config
	synced atomic.Bool

	// mu guards all below. What these refer to is never changed, and may be read without it.
	mu            sync.RWMutex
	providers     *providers
	placements    *placements
	namespaces    *namespaces
	policies      *policies
	foreign       *btree.BTreeG[*liqov1beta1.ForeignCluster]
	subscriptions map[*Subscription]struct{}
	// revision counts the changes of providers and selections.
	revision uint64
}

// New returns a View that knows nothing yet, and will learn from the cache, which has CacheOptions.
func New(c cache.Cache, cfg Config) *View {
	return &View{
		cache: c, cfg: cfg.withDefaults(),
		providers: newProviders(), placements: newPlacements(), namespaces: newNamespaces(), policies: newPolicies(),
		foreign:       btree.NewG(degree, func(x, y *liqov1beta1.ForeignCluster) bool { return x.Name < y.Name }),
		subscriptions: map[*Subscription]struct{}{},
	}
}

// Synced says whether everything that there was when Run began is known.
func (v *View) Synced() bool { return v.synced.Load() }

// Run keeps the view up to date, and samples how the providers do, until ctx ends. It returns nil then, and an error if
// the cache cannot watch something. Somebody else starts the cache.
func (v *View) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	synced := make(chan struct{})
	group.Go(func() error {
		return follow.Run(ctx, v.cache, v.sources(), func() {
			v.synced.Store(true)
			close(synced)
		})
	})
	group.Go(func() error {
		select {
		case <-ctx.Done():
		case <-synced:
			v.sampleUntil(ctx)
		}
		return nil
	})
	return group.Wait()
}

// sampleUntil notes how the providers do, at once and then every SampleEvery.
func (v *View) sampleUntil(ctx context.Context) {
	ticker := v.cfg.Clock.NewTicker(v.cfg.SampleEvery)
	defer ticker.Stop()
	for {
		v.mu.Lock()
		v.providers.sample(v.cfg.Clock.Now().UTC(), v.cfg.Samples)
		v.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// sources begins with namespaces, so that pods mostly find the consumer that they come from.
func (v *View) sources() []follow.Source {
	return []follow.Source{
		follow.Objects(&corev1.Namespace{}, v.setNamespace, v.removeNamespace),
		follow.Objects(&v1alpha1.ProviderCluster{}, v.setProvider, v.removeProvider),
		follow.Objects(&offloadingv1beta1.VirtualNode{}, v.setVirtualNode, v.removeVirtualNode),
		follow.Objects(&v1alpha1.PlacementPolicy{}, v.setPolicy, v.removePolicy),
		follow.Objects(&liqov1beta1.ForeignCluster{}, v.setForeign, v.removeForeign),
		follow.Objects(&corev1.Pod{}, v.setPod, v.removePod),
	}
}
