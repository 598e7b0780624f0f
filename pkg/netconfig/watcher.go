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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	fcutils "github.com/liqotech/liqo/pkg/utils/foreigncluster"
)

// Watcher keeps the View of one remote cluster. It watches two objects: the ForeignCluster and the Configuration that
// bear the cluster's id.
type Watcher struct {
	log     logr.Logger
	factory dynamicinformer.DynamicSharedInformerFactory
	foreign cache.SharedIndexInformer
	configs cache.SharedIndexInformer

	view atomic.Pointer[View]
	// dirty holds at most one token: something changed since the View was last derived.
	dirty chan struct{}
	// synced is closed once the first View has been derived from synchronised caches.
	synced chan struct{}
}

// NewWatcher returns the watcher of the remote cluster; nothing happens before Run.
func NewWatcher(client dynamic.Interface, cluster liqov1beta1.ClusterID, resync time.Duration, log logr.Logger) *Watcher {
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, resync, metav1.NamespaceAll,
		func(opts *metav1.ListOptions) {
			opts.LabelSelector = labels.Set{consts.RemoteClusterID: string(cluster)}.String()
		})
	informer := func(resource schema.GroupVersionResource) cache.SharedIndexInformer {
		return factory.ForResource(resource).Informer()
	}
	w := &Watcher{
		log:     log,
		factory: factory,
		foreign: informer(liqov1beta1.ForeignClusterGroupVersionResource),
		configs: informer(networkingv1beta1.ConfigurationGroupVersionResource),
		dirty:   make(chan struct{}, 1),
		synced:  make(chan struct{}),
	}
	w.view.Store(&View{})
	return w
}

// View returns the current view.
func (w *Watcher) View() View { return *w.view.Load() }

// Synced is closed once the view reflects what the API server had when Run started.
func (w *Watcher) Synced() <-chan struct{} { return w.synced }

// Run keeps the view until ctx ends, and calls changed after every change but the first. It calls it from one goroutine.
func (w *Watcher) Run(ctx context.Context, changed func()) error {
	mark := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.mark() },
		UpdateFunc: func(any, any) { w.mark() },
		DeleteFunc: func(any) { w.mark() },
	}
	for _, informer := range []cache.SharedIndexInformer{w.foreign, w.configs} {
		if _, err := informer.AddEventHandler(mark); err != nil {
			return fmt.Errorf("watching the network configuration: %w", err)
		}
	}

	w.factory.Start(ctx.Done())
	defer w.factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), w.foreign.HasSynced, w.configs.HasSynced) {
		return nil
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

func (w *Watcher) mark() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// derive reads the caches afresh and reports whether the view changed.
func (w *Watcher) derive() bool {
	before := w.View()
	after, err := before.Next(w.foreignCluster(), w.configurations())
	if err != nil && !errors.Is(err, ErrNotConfigured) {
		w.log.Error(err, "Cannot use the network configuration")
	}
	if before.equal(after) {
		return false
	}
	w.view.Store(&after)
	w.log.Info("Network configuration changed", "networkingModule", after.Module.String(), "translating", after.Table != nil)
	return true
}

func (w *Watcher) foreignCluster() *liqov1beta1.ForeignCluster {
	list := liqov1beta1.ForeignClusterList{}
	for _, fc := range decode[liqov1beta1.ForeignCluster](w.foreign, w.log) {
		list.Items = append(list.Items, *fc)
	}
	return fcutils.GetOlderForeignCluster(&list)
}

func (w *Watcher) configurations() []*networkingv1beta1.Configuration {
	return decode[networkingv1beta1.Configuration](w.configs, w.log)
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
