package liqov0

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// typeLabel of virtual nodes is virtualNode (pkg/consts in v0.9.4).
	typeLabel   = "liqo.io/type"
	virtualNode = "virtual-node"
	// clusterLabel of a virtual node is the id of its cluster.
	clusterLabel = "liqo.io/remote-cluster-id"
)

// foreignCluster is the kind of Liqo v0.x.
var foreignCluster = schema.GroupVersionKind{Group: "discovery.liqo.io", Version: "v1alpha1", Kind: "ForeignCluster"}

// CacheOptions are the options of the cache that Clusters reads. It has only the virtual nodes.
func CacheOptions() cache.Options {
	return cache.Options{
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}: {Label: labels.SelectorFromSet(labels.Set{typeLabel: virtualNode})},
		},
		ReaderFailOnMissingInformer: true,
	}
}

// Clusters are the ForeignClusters of Liqo v0.x and their virtual nodes.
type Clusters struct {
	cache  cache.Cache
	synced atomic.Bool
}

// NewClusters returns the Clusters of a cache.
func NewClusters(of cache.Cache) *Clusters { return &Clusters{cache: of} }

// Run fills the cache, which must run, and returns nil when ctx ends.
func (c *Clusters) Run(ctx context.Context) error {
	foreign := &unstructured.Unstructured{}
	foreign.SetGroupVersionKind(foreignCluster)
	for _, kind := range []client.Object{foreign, &corev1.Node{}} {
		if _, err := c.cache.GetInformer(ctx, kind); err != nil && ctx.Err() == nil {
			return fmt.Errorf("reading ForeignClusters of Liqo v0.x and nodes: %w", err)
		}
	}
	if c.cache.WaitForCacheSync(ctx) {
		c.synced.Store(true)
	}
	<-ctx.Done()
	return nil
}

// Synced reports whether the cache is filled.
func (c *Clusters) Synced() bool { return c.synced.Load() }

// list returns copies of the ForeignClusters, sorted by name.
func (c *Clusters) list(ctx context.Context) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(foreignCluster.GroupVersion().WithKind(foreignCluster.Kind + "List"))
	if err := c.cache.List(ctx, list); err != nil {
		return nil, fmt.Errorf("ForeignClusters: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return list.Items, nil
}

// id returns the id of the ForeignCluster with that id, or else with that name; false if there is none.
func (c *Clusters) id(ctx context.Context, named string) (string, bool, error) {
	all, err := c.list(ctx)
	if err != nil {
		return "", false, err
	}
	for _, same := range []func(*unstructured.Unstructured) string{idOf, (*unstructured.Unstructured).GetName} {
		for i := range all {
			if named != "" && same(&all[i]) == named {
				return idOf(&all[i]), true, nil
			}
		}
	}
	return "", false, nil
}

// nodes returns the virtual nodes of a cluster, sorted by name.
func (c *Clusters) nodes(ctx context.Context, id string) ([]corev1.Node, error) {
	list := &corev1.NodeList{}
	if err := c.cache.List(ctx, list, client.MatchingLabels{clusterLabel: id}); err != nil {
		return nil, fmt.Errorf("virtual nodes of cluster %s: %w", id, err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return list.Items, nil
}

func idOf(fc *unstructured.Unstructured) string {
	id, _, _ := unstructured.NestedString(fc.Object, "spec", "clusterIdentity", "clusterID")
	return id
}
