package federation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/google/btree"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
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
func (v *View) Run(ctx context.Context) (err error) {
	var synced []toolscache.InformerSynced
	for _, s := range v.sources() {
		informer, err := v.cache.GetInformer(ctx, s.kind, cache.BlockUntilSynced(false))
		if err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // It is the end of ctx.
			}
			return fmt.Errorf("informer of %T: %w", s.kind, err)
		}
		registration, handlerErr := informer.AddEventHandler(s.handler)
		if handlerErr != nil {
			return fmt.Errorf("informer of %T: %w", s.kind, handlerErr)
		}
		synced = append(synced, registration.HasSynced)
		defer func() { err = errors.Join(err, informer.RemoveEventHandler(registration)) }()
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	v.synced.Store(true)
	v.sampleUntil(ctx)
	return nil
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

// source is a kind of objects, and what is done when one changes.
type source struct {
	kind    client.Object
	handler toolscache.ResourceEventHandler
}

// sources begins with namespaces, so that pods mostly find the consumer that they come from.
func (v *View) sources() []source {
	return []source{
		{&corev1.Namespace{}, handlerOf(v.setNamespace, v.removeNamespace)},
		{&v1alpha1.ProviderCluster{}, handlerOf(v.setProvider, v.removeProvider)},
		{&offloadingv1beta1.VirtualNode{}, handlerOf(v.setVirtualNode, v.removeVirtualNode)},
		{&v1alpha1.PlacementPolicy{}, handlerOf(v.setPolicy, v.removePolicy)},
		{&liqov1beta1.ForeignCluster{}, handlerOf(v.setForeign, v.removeForeign)},
		{&corev1.Pod{}, handlerOf(v.setPod, v.removePod)},
	}
}
