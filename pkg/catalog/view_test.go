package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/federation"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// fakeView answers from what it is given, by a naive filter.
type fakeView struct {
	mu         sync.Mutex
	filled     bool
	clusters   []liqov1beta1.ForeignCluster
	providers  []api.Provider
	placements []api.Placement
	policies   []api.Policy
	names      []string // Of more namespaces, and consumers.
	stream     chan federation.Change
	open       int                // Subscriptions; guarded by mu.
	scopes     []federation.Scope // Of subscriptions; guarded by mu.
	asked      federation.Scope   // Of the last question; guarded by mu.
}

// moment is when everything happened.
var moment = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newFakeView() *fakeView {
	v := &fakeView{filled: true, stream: make(chan federation.Change, 100)}
	for _, id := range []string{"p1", "p2", "p3"} {
		amounts := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")}
		v.providers = append(v.providers, api.Provider{
			ID: id, Enabled: true, Ready: id != "p3", Region: "eu", Price: ptr.To(0.04), Created: moment,
			Attributes: map[string]string{"region": "eu", "price": "0.04"},
			Resources:  api.Resources{Granted: amounts, Free: amounts},
			Conditions: []api.Condition{{Type: "Ready", Status: "True", Since: moment}},
		})
		v.clusters = append(v.clusters, liqov1beta1.ForeignCluster{
			TypeMeta:   metav1.TypeMeta{Kind: "ForeignCluster", APIVersion: "core.liqo.io/v1beta1"},
			ObjectMeta: metav1.ObjectMeta{Name: "cluster-" + id}, Spec: liqov1beta1.ForeignClusterSpec{ClusterID: liqov1beta1.ClusterID(id)},
		})
	}
	for pod, consumer := range map[string]string{"web-c1/pod-of-c1": "c1", "web-c2/pod-of-c2": "c2", "own/pod-of-nobody": ""} {
		namespace, name, _ := strings.Cut(pod, "/")
		v.placements = append(v.placements, api.Placement{
			Namespace: namespace, Pod: name, Consumer: consumer, Provider: "p1", Phase: "Running", Created: moment, Score: ptr.To(80),
		})
	}
	slices.SortFunc(v.placements, func(a, b api.Placement) int { return strings.Compare(a.Namespace, b.Namespace) })
	for name, consumers := range map[string][]string{"all": nil, "of-c1": {"c1"}, "of-c2": {"c2"}, "of-both": {"c1", "c2"}} {
		v.policies = append(v.policies, api.Policy{Name: name, Consumers: consumers})
	}
	slices.SortFunc(v.policies, func(a, b api.Policy) int { return strings.Compare(a.Name, b.Name) })
	return v
}

func (v *fakeView) Synced() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.filled
}

func (v *fakeView) Providers(q federation.ProviderQuery) (api.ProviderList, error) {
	if q.Continue != "" && q.Continue != "next" {
		return api.ProviderList{}, fmt.Errorf("%w: %q", federation.ErrContinue, q.Continue)
	}
	var list api.ProviderList
	for _, p := range v.providers {
		if (q.Ready == nil || *q.Ready == p.Ready) && len(list.Items) < q.Limit {
			list.Items = append(list.Items, v.selectedBy(p, q.Consumer))
		}
	}
	list.Total = len(list.Items)
	return list, nil
}

func (v *fakeView) selectedBy(p api.Provider, consumer string) api.Provider {
	if consumer != "" {
		p.Selected = ptr.To(true)
	}
	return p
}

func (v *fakeView) Provider(id, consumer string) (api.Provider, bool) {
	for _, p := range v.providers {
		if p.ID == id {
			return v.selectedBy(p, consumer), true
		}
	}
	return api.Provider{}, false
}

func (v *fakeView) History(id string) (api.History, bool) {
	_, ok := v.Provider(id, "")
	return api.History{ID: id, Since: moment}, ok
}

func sees(s federation.Scope, p *api.Placement) bool {
	return s.All || (s.Consumer != "" || s.Namespace != "") &&
		(s.Consumer == "" || s.Consumer == p.Consumer) && (s.Namespace == "" || s.Namespace == p.Namespace)
}

// remember keeps the scope of a question.
func (v *fakeView) remember(s federation.Scope) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = s
}

func (v *fakeView) Placements(q federation.PlacementQuery) (api.PlacementList, error) {
	v.remember(q.Scope)
	var list api.PlacementList
	for i := range v.placements {
		p := &v.placements[i]
		if sees(q.Scope, p) && (q.Namespace == "" || q.Namespace == p.Namespace) && (q.Consumer == "" || q.Consumer == p.Consumer) {
			list.Items = append(list.Items, *p)
		}
	}
	list.Total = len(list.Items)
	return list, nil
}

func (v *fakeView) Placement(namespace, pod string) (api.Placement, bool) {
	for _, p := range v.placements {
		if p.Namespace == namespace && p.Pod == pod {
			return p, true
		}
	}
	return api.Placement{}, false
}

func (v *fakeView) Flows(s federation.Scope) api.FlowList {
	v.remember(s)
	var list api.FlowList
	for i := range v.placements {
		if p := &v.placements[i]; sees(s, p) {
			list.Items = append(list.Items, api.Flow{Consumer: p.Consumer, Provider: p.Provider, Pods: 1})
		}
	}
	return list
}

func (v *fakeView) Policies(s federation.Scope, _ federation.Page) (api.PolicyList, error) {
	v.remember(s)
	var list api.PolicyList
	for _, p := range v.policies {
		switch {
		case s.All:
		case s.Consumer == "" || len(p.Consumers) > 0 && !slices.Contains(p.Consumers, s.Consumer):
			continue
		case len(p.Consumers) > 0:
			p.Consumers = []string{s.Consumer}
		}
		list.Items = append(list.Items, p)
	}
	list.Total = len(list.Items)
	return list, nil
}

func (v *fakeView) ForeignClusters() []liqov1beta1.ForeignCluster { return slices.Clone(v.clusters) }

func (v *fakeView) HasNamespace(name string) bool {
	return name == "own" || slices.Contains(v.names, name) || v.ConsumerOfNamespace(name) != ""
}

func (v *fakeView) ConsumerOfNamespace(namespace string) string {
	if consumer, ok := strings.CutPrefix(namespace, "web-"); ok && (consumer == "c1" || consumer == "c2") {
		return consumer
	}
	return ""
}

func (v *fakeView) TenantNamespace(consumer string) (string, bool) {
	return "liqo-tenant-" + consumer, consumer == "c1" || consumer == "c2" || slices.Contains(v.names, consumer)
}

func (v *fakeView) TenantOf(namespace string) (string, bool) {
	consumer, ok := strings.CutPrefix(namespace, "liqo-tenant-")
	return consumer, ok
}

func (v *fakeView) Subscribe(s federation.Scope, _ string) changes {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open++
	v.scopes = append(v.scopes, s)
	return &fakeSubscription{view: v, scope: s}
}

func (v *fakeView) subscriptions() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.open
}

// fakeSubscription gives what the view's stream is given.
type fakeSubscription struct {
	view   *fakeView
	scope  federation.Scope
	synced bool
}

func (s *fakeSubscription) Next(ctx context.Context) ([]federation.Change, error) {
	if !s.synced {
		s.synced = true
		return []federation.Change{{Event: api.EventSync}}, nil
	}
	select {
	case change := <-s.view.stream:
		return []federation.Change{change}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *fakeSubscription) Close() {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()
	s.view.open--
}

// fakeCluster has the objects that are written to, and explained.
func fakeCluster(t *testing.T) client.Client {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	build := fake.NewClientBuilder().WithScheme(scheme)
	for _, id := range []string{"p1", "p2", "p3"} {
		build.WithObjects(
			&v1alpha1.ProviderCluster{
				ObjectMeta: metav1.ObjectMeta{Name: id},
				Spec:       v1alpha1.ProviderClusterSpec{Attributes: map[string]string{"price": "0.04", "region": "eu"}},
				Status: v1alpha1.ProviderClusterStatus{
					Conditions: []metav1.Condition{{Type: v1alpha1.ProviderReady, Status: metav1.ConditionTrue}},
					VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: id + "-1", Ready: true, Resources: v1alpha1.Resources{
						Granted: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")},
					}}},
				},
			},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "liqo-tenant-" + id, Labels: map[string]string{"liqo.io/remote-cluster-id": id, "liqo.io/tenant-namespace": "true"},
			}},
			&offloadingv1beta1.NamespaceMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + id, Name: id, Labels: map[string]string{"liqo.io/remote-cluster-id": id}},
				Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
					"web-c1": {Phase: offloadingv1beta1.MappingAccepted}, "web-c2": {Phase: offloadingv1beta1.MappingAccepted},
				}},
			})
	}
	for _, consumer := range []string{"c1", "c2"} {
		build.WithObjects(
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "web-" + consumer, Labels: map[string]string{"liqo.io/remote-cluster-id": consumer},
			}},
			&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "web-" + consumer, Name: "pod-of-" + consumer, UID: "uid-" + "1"},
				Spec:       corev1.PodSpec{NodeName: node},
			})
	}
	return build.Build()
}
