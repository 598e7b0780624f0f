package view

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/google/btree"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view/podindex"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/informers"
)

// View is a read model of the federation. Its methods are safe for concurrent use.
type View struct {
	cache  cache.Cache
	cfg    Config
	state  *state.State
	synced atomic.Bool

	// mu guards all below. The objects that these refer to are never changed, and may be read without it.
	mu            sync.RWMutex
	providers     *providers
	pods          *podindex.Index
	namespaces    *namespaces
	policies      *policies
	foreign       *btree.BTreeG[*liqov1beta1.ForeignCluster]
	subscriptions map[*Subscription]struct{}
}

// New returns an empty View. Run fills it from the cache, which has CacheOptions.
func New(c cache.Cache, cfg Config) *View {
	return &View{
		cache: c, cfg: cfg.withDefaults(), state: state.New(cfg.Node),
		providers: newProviders(), pods: podindex.New(), namespaces: newNamespaces(), policies: newPolicies(),
		foreign:       btree.NewG(degree, func(x, y *liqov1beta1.ForeignCluster) bool { return x.Name < y.Name }),
		subscriptions: map[*Subscription]struct{}{},
	}
}

// Synced reports whether the View has every object that existed when Run began.
func (v *View) Synced() bool { return v.synced.Load() }

// State returns the scheduler's state, which the View keeps up to date.
func (v *View) State() *state.State { return v.state }

// Run keeps the View up to date, and samples the providers, until ctx ends. It returns nil then, and an error if the
// cache cannot watch a kind. The caller starts the cache.
func (v *View) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	synced := make(chan struct{})
	group.Go(func() error {
		return informers.Run(ctx, v.cache, v.sources(), func() {
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

// sampleUntil samples the providers at once, and then every SampleEvery, until ctx ends.
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

// sources begin with namespaces, so that most pods find the namespace that they are in.
func (v *View) sources() []informers.Source {
	return []informers.Source{
		informers.Objects(&corev1.Namespace{}, v.setNamespace, v.removeNamespace),
		informers.Objects(&v1alpha1.ProviderCluster{}, v.setProvider, v.removeProvider),
		informers.Objects(&offloadingv1beta1.VirtualNode{}, v.setVirtualNode, v.removeVirtualNode),
		informers.Objects(&offloadingv1beta1.NamespaceMap{}, v.state.SetNamespaceMap, v.state.RemoveNamespaceMap),
		informers.Objects(&v1alpha1.PlacementPolicy{}, v.setPolicy, v.removePolicy),
		informers.Objects(&liqov1beta1.ForeignCluster{}, v.setForeign, v.removeForeign),
		informers.Objects(&corev1.Pod{}, v.setPod, v.removePod),
		// Explanations read these from the cache.
		informers.Objects(&corev1.PersistentVolumeClaim{}, func(*corev1.PersistentVolumeClaim) {}, func(types.NamespacedName) {}),
		informers.Objects(&corev1.PersistentVolume{}, func(*corev1.PersistentVolume) {}, func(types.NamespacedName) {}),
	}
}
