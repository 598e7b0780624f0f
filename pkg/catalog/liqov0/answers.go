package liqov0

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/problem"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/toggle"
)

// EnabledAnnotation is on the clusters of the answer that have virtual nodes. It is true if pods may be scheduled to
// one of them. The objects in the API server do not have it.
const EnabledAnnotation = "brokering.liqo.io/enabled"

// list answers with the ForeignClusters as a JSON array. Callers without the right to list them see no status.
func (c *Catalog) list(r *http.Request) (any, error) {
	ctx := r.Context()
	details, err := c.sees(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.Clusters.list(ctx)
	if err != nil {
		return nil, err
	}
	objects := make([]map[string]any, 0, len(all))
	for i := range all {
		shown := &all[i]
		nodes, err := c.Clusters.nodes(ctx, idOf(shown))
		if err != nil {
			return nil, err
		}
		if !details {
			shown = publicCluster(shown)
		}
		trim(shown, nodes)
		objects = append(objects, shown.Object)
	}
	return objects, nil
}

// sees reports whether the caller may see the status of ForeignClusters, and returns an error if it may see no
// ForeignClusters.
func (c *Catalog) sees(ctx context.Context) (details bool, err error) {
	who := middleware.CallerOf(ctx)
	if c.ReadAuth {
		return true, c.Rights.Need(ctx, who, caller.ListForeignClustersV0())
	}
	return c.Rights.Has(ctx, who, caller.ListForeignClustersV0())
}

// publicCluster has the fields that a client needs to peer with the cluster: no status, and no annotations.
func publicCluster(fc *unstructured.Unstructured) *unstructured.Unstructured {
	public := &unstructured.Unstructured{Object: map[string]any{"spec": fc.Object["spec"]}}
	public.SetGroupVersionKind(fc.GroupVersionKind())
	public.SetName(fc.GetName())
	public.SetLabels(fc.GetLabels())
	public.SetCreationTimestamp(fc.GetCreationTimestamp())
	return public
}

// trim removes the fields that no client needs, and adds EnabledAnnotation.
func trim(fc *unstructured.Unstructured, nodes []corev1.Node) {
	fc.SetManagedFields(nil)
	annotations := fc.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	delete(annotations, EnabledAnnotation)
	if len(nodes) > 0 {
		if annotations == nil {
			annotations = map[string]string{}
		}
		enabled := slices.ContainsFunc(nodes, func(n corev1.Node) bool { return !n.Spec.Unschedulable })
		annotations[EnabledAnnotation] = strconv.FormatBool(enabled)
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	fc.SetAnnotations(annotations)
}

type toggled struct {
	ID      string `json:"id"`
	Enabled bool   `json:"enabled"`
}

// toggle cordons or uncordons the virtual nodes of a cluster: pods that run there go on running. It needs the right to
// patch the nodes, unless AnonymousToggle is set.
func (c *Catalog) toggle(r *http.Request) (any, error) {
	ctx, query := r.Context(), r.URL.Query()
	named, enable := query.Get("id"), query.Get("enable")
	who := middleware.CallerOf(ctx)
	if !who.Known() && !c.AnonymousToggle {
		return nil, toggle.Unidentified(named, enable)
	}
	if p := toggle.Check(named, enable); p != nil {
		return nil, p
	}
	id, _, err := c.Clusters.id(ctx, named)
	if err != nil {
		return nil, err
	}
	nodes, err := c.Clusters.nodes(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := c.mayCordon(ctx, nodes); err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, problem.New(http.StatusNotFound,
			"cluster not found, or it has no virtual node because there is no outgoing peering with it")
	}
	out := toggled{ID: id, Enabled: enable == "true"}
	for i := range nodes {
		if err := c.cordon(ctx, nodes[i].Name, !out.Enabled); err != nil {
			return nil, err
		}
	}
	c.Log.Info("Set the enabled state of a cluster", "cluster", id, "enabled", out.Enabled, "caller", who.Name())
	return out, nil
}

// mayCordon returns an error unless the caller may patch the nodes, or every node. The error does not name the nodes.
func (c *Catalog) mayCordon(ctx context.Context, nodes []corev1.Node) error {
	if c.AnonymousToggle {
		return nil
	}
	names := []string{"of a cluster"} // Not the name of a node: the right is not reviewed.
	if len(nodes) > 0 {
		names = nil
	}
	for i := range nodes {
		names = append(names, nodes[i].Name)
	}
	for _, name := range names {
		err := c.Rights.NeedEither(ctx, middleware.CallerOf(ctx), caller.PatchNode(""), caller.PatchNode(name), len(nodes) > 0)
		if forbidden := (*caller.ForbiddenError)(nil); errors.As(err, &forbidden) {
			return &caller.ForbiddenError{What: "patch the virtual nodes of this cluster"}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Catalog) cordon(ctx context.Context, name string, cordoned bool) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned))
	if err := c.Live.Patch(ctx, node, patch); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	return nil
}
