package netconfig

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	fcutils "github.com/liqotech/liqo/pkg/utils/foreigncluster"
)

// Watcher keeps the View of one remote cluster, or of all remote clusters. It watches the ForeignClusters and the
// Configurations, which are labelled with the id of their cluster.
type Watcher struct {
	log     logr.Logger
	cluster string
	all     bool
	factory dynamicinformer.DynamicSharedInformerFactory
	foreign cache.SharedIndexInformer
	// configs is nil if the Configurations are not watched.
	configs cache.SharedIndexInformer
	// table is the given table of the peering's cluster; nil if none is given.
	table *Table

	// views has the Views by cluster id. The map is never changed, only replaced.
	views atomic.Pointer[map[string]View]
	// dirty holds at most one token: an object changed after the views were last derived.
	dirty chan struct{}
	// synced is closed once the first views have been derived from synced caches.
	synced chan struct{}
}

// Options select the objects to watch.
type Options struct {
	// Cluster is the remote cluster of the peering.
	Cluster liqov1beta1.ClusterID
	// All also watches all other clusters, and whether they are connected.
	All bool
	// Table is the translation of the peering's cluster, if it is given instead of being read from its Configuration.
	Table *Table
	// NoConfigurations means that this process has no right to read Configurations. Without a Table no address is
	// translated then.
	NoConfigurations bool
	Resync           time.Duration
	Log              logr.Logger
}

// NewWatcher returns the watcher of the remote cluster; it does nothing before Run.
func NewWatcher(client dynamic.Interface, o Options) *Watcher {
	selector := labels.Set{consts.RemoteClusterID: string(o.Cluster)}.String()
	if o.All {
		selector = consts.RemoteClusterID
	}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, o.Resync, metav1.NamespaceAll,
		func(opts *metav1.ListOptions) { opts.LabelSelector = selector })
	informer := func(resource schema.GroupVersionResource) cache.SharedIndexInformer {
		return factory.ForResource(resource).Informer()
	}
	w := &Watcher{
		log:     o.Log,
		cluster: string(o.Cluster),
		all:     o.All,
		factory: factory,
		foreign: informer(liqov1beta1.ForeignClusterGroupVersionResource),
		table:   o.Table,
		dirty:   make(chan struct{}, 1),
		synced:  make(chan struct{}),
	}
	if !o.NoConfigurations && (o.All || o.Table == nil) {
		w.configs = informer(networkingv1beta1.ConfigurationGroupVersionResource)
	}
	w.views.Store(&map[string]View{})
	return w
}

// View returns the current view of the peering's cluster.
func (w *Watcher) View() View { return w.Of(w.cluster) }

// Of returns the current view of a cluster; the zero View if it is unknown.
func (w *Watcher) Of(cluster string) View { return (*w.views.Load())[cluster] }

// Synced is closed once the view reflects the state of the API server when Run started.
func (w *Watcher) Synced() <-chan struct{} { return w.synced }

// Run updates the view until ctx ends, and calls changed after every change except the first. It always calls it from
// the same goroutine.
func (w *Watcher) Run(ctx context.Context, changed func()) error {
	mark := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.mark() },
		UpdateFunc: func(any, any) { w.mark() },
		DeleteFunc: func(any) { w.mark() },
	}
	for _, informer := range w.informers() {
		if _, err := informer.AddEventHandler(mark); err != nil {
			return fmt.Errorf("watching the network configuration: %w", err)
		}
	}

	w.factory.Start(ctx.Done())
	defer w.factory.Shutdown()
	for _, informer := range w.informers() {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return nil
		}
	}
	w.derive()
	close(w.synced)

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.dirty:
			if w.derive() {
				changed()
			}
		}
	}
}

func (w *Watcher) informers() []cache.SharedIndexInformer {
	if w.configs == nil {
		return []cache.SharedIndexInformer{w.foreign}
	}
	return []cache.SharedIndexInformer{w.foreign, w.configs}
}

func (w *Watcher) mark() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// derive reads the caches again and reports whether a view changed.
func (w *Watcher) derive() bool {
	foreign := byCluster(decode[liqov1beta1.ForeignCluster](w.foreign, w.log))
	var configs map[string][]*networkingv1beta1.Configuration
	if w.configs != nil {
		configs = byCluster(decode[networkingv1beta1.Configuration](w.configs, w.log))
	}
	before := *w.views.Load()
	clusters := sets.KeySet(foreign).Union(sets.KeySet(configs)).Union(sets.KeySet(before)).Insert(w.cluster)
	after := make(map[string]View, clusters.Len())
	changed := false
	for cluster := range clusters {
		view := w.deriveOne(cluster, before[cluster], foreign[cluster], configs[cluster])
		after[cluster] = view
		if before[cluster].equal(view) {
			continue
		}
		changed = true
		w.log.Info("Network configuration changed", "cluster", cluster, "networkingModule", view.Module.String(),
			"translating", view.Table != nil)
	}
	w.views.Store(&after)
	return changed
}

func (w *Watcher) deriveOne(cluster string, before View, foreign []*liqov1beta1.ForeignCluster,
	configs []*networkingv1beta1.Configuration,
) View {
	list := liqov1beta1.ForeignClusterList{}
	for _, fc := range foreign {
		list.Items = append(list.Items, *fc)
	}
	fc := fcutils.GetOlderForeignCluster(&list)
	if cluster == w.cluster && w.table != nil {
		before.Table, configs = w.table, nil
	}
	view, err := before.Next(fc, configs)
	if err != nil && !errors.Is(err, ErrNotConfigured) {
		w.log.Error(err, "Cannot use the network configuration", "cluster", cluster)
	}
	view.Established = w.all && fc != nil && fcutils.IsNetworkingEstablished(fc)
	return view
}

// byCluster groups objects by the cluster id in their label.
func byCluster[T metav1.Object](objects []T) map[string][]T {
	out := map[string][]T{}
	for _, o := range objects {
		cluster := o.GetLabels()[consts.RemoteClusterID]
		out[cluster] = append(out[cluster], o)
	}
	return out
}

func decode[T any](informer cache.SharedIndexInformer, log logr.Logger) []*T {
	var out []*T
	for _, obj := range informer.GetStore().List() {
		object := new(T)
		content := obj.(*unstructured.Unstructured).UnstructuredContent()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, object); err != nil {
			log.Error(err, "Cannot decode an object", "type", fmt.Sprintf("%T", object))
			continue
		}
		out = append(out, object)
	}
	return out
}

// String is the word for logs.
func (m Module) String() string {
	return map[Module]string{Unknown: "Unknown", Disabled: "Disabled", Enabled: "Enabled"}[m]
}
