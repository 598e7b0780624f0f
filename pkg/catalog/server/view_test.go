package server

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// moment is the time when every object was created.
var moment = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// observed is a View whose informers are the test.
type observed struct {
	*view.View
	t         testing.TB
	informers *informertest.FakeInformers
}

func newObserved(t testing.TB) *observed {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	informers := &informertest.FakeInformers{Scheme: scheme}
	return &observed{View: view.New(informers, view.Config{Node: node}), t: t, informers: informers}
}

// run runs the View until stop is called, with these objects at the beginning.
func (o *observed) run(objects ...client.Object) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	for !o.Synced() {
		time.Sleep(time.Millisecond)
	}
	o.set(objects...)
	return func() {
		cancel()
		require.NoError(o.t, <-ended)
	}
}

func (o *observed) set(objects ...client.Object) {
	for _, object := range objects {
		informer, err := o.informers.FakeInformerFor(context.Background(), object)
		require.NoError(o.t, err)
		informer.Update(nil, object)
	}
}

func (o *observed) remove(object client.Object) {
	informer, err := o.informers.FakeInformerFor(context.Background(), object)
	require.NoError(o.t, err)
	informer.Delete(object)
}

// subscriptions counts the open subscriptions of a view.
type subscriptions struct {
	view *observed
	mu   sync.Mutex
	open int // Guarded by mu.
}

func (s *subscriptions) subscribe(scope view.Scope, consumer string) changes {
	s.mu.Lock()
	s.open++
	s.mu.Unlock()
	return &subscription{Subscription: s.view.Subscribe(scope, consumer), of: s}
}

func (s *subscriptions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

type subscription struct {
	*view.Subscription
	of *subscriptions
}

func (s *subscription) Close() {
	s.Subscription.Close()
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.open--
}

func clusterOf(id string) *liqov1beta1.ForeignCluster {
	return &liqov1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-" + id}, Spec: liqov1beta1.ForeignClusterSpec{ClusterID: liqov1beta1.ClusterID(id)},
	}
}

func tenantOf(id string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "liqo-tenant-" + id, Labels: map[string]string{"liqo.io/remote-cluster-id": id, "liqo.io/tenant-namespace": "true"},
	}}
}

func providerOf(id string, pods int32) *v1alpha1.ProviderCluster {
	amounts := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")}
	resources := v1alpha1.Resources{Granted: amounts, Free: amounts}
	ready := metav1.ConditionTrue
	if id == "p3" {
		ready = metav1.ConditionFalse
	}
	return &v1alpha1.ProviderCluster{
		ObjectMeta: metav1.ObjectMeta{Name: id, CreationTimestamp: metav1.NewTime(moment)},
		Spec:       v1alpha1.ProviderClusterSpec{Attributes: map[string]string{"price": "0.04", "region": "eu"}},
		Status: v1alpha1.ProviderClusterStatus{
			Pods: pods, Resources: resources,
			Conditions:   []metav1.Condition{{Type: v1alpha1.ProviderReady, Status: ready, LastTransitionTime: metav1.NewTime(moment)}},
			VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: id + "-1", Ready: true, Resources: resources}},
		},
	}
}

// podOf is the pod of a consumer, or of the broker's own cluster with "".
func podOf(consumer string) *corev1.Pod {
	namespace, name := "web-"+consumer, "pod-of-"+consumer
	if consumer == "" {
		namespace, name = "own", "pod-of-own"
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: "uid", CreationTimestamp: metav1.NewTime(moment),
			Labels:      map[string]string{v1alpha1.VirtualNodeLabel: "p1-1", v1alpha1.ProviderLabel: "p1"},
			Annotations: map[string]string{v1alpha1.DecisionAnnotation: "p1 80: price 80"},
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// federation has three providers, consumers c1 and c2, and a pod of each consumer and of the broker's own cluster.
func federation() []client.Object {
	objects := []client.Object{podOf(""), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "own"}}}
	for _, id := range []string{"p1", "p2", "p3"} {
		objects = append(objects, clusterOf(id), tenantOf(id), providerOf(id, 1), &offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "liqo-tenant-" + id, Name: id, Labels: map[string]string{"liqo.io/remote-cluster-id": id},
			},
			Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"web-c1": "", "web-c2": ""}},
			Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
				"web-c1": {Phase: offloadingv1beta1.MappingAccepted}, "web-c2": {Phase: offloadingv1beta1.MappingAccepted},
			}},
		})
	}
	for _, consumer := range []string{"c1", "c2"} {
		objects = append(objects, tenantOf(consumer), podOf(consumer), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "web-" + consumer, Labels: map[string]string{"liqo.io/remote-cluster-id": consumer},
			Annotations: map[string]string{"liqo.io/managed-by-namespace-map": "liqo-tenant/" + consumer},
		}})
	}
	return objects
}

// policies are the policies that the view shows.
func policies() []client.Object {
	var all []client.Object
	for name, consumers := range map[string][]string{"all": nil, "of-c1": {"c1"}, "of-c2": {"c2"}, "of-both": {"c1", "c2"}} {
		all = append(all, &v1alpha1.PlacementPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PlacementPolicySpec{Consumers: consumers},
		})
	}
	return all
}

// clusterWith is an API server with objects, for writes and explanations.
func clusterWith(t testing.TB, objects []client.Object) client.Client {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	build := fake.NewClientBuilder().WithScheme(scheme)
	for _, o := range objects {
		build.WithObjects(o.DeepCopyObject().(client.Object))
	}
	return build.Build()
}

// podsIn are the names of the pods in events, sorted.
func podsIn(events []string) []string {
	var names []string
	for _, line := range events {
		if _, after, ok := strings.Cut(line, `"pod":"`); ok {
			name, _, _ := strings.Cut(after, `"`)
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Answers share memory with the view. Data that one caller may not see, or changes, must be unchanged in the answers to
// other callers.
func TestNoAnswerChangesTheView(t *testing.T) {
	c := start(t)
	paths := []string{
		"/api/v1/providers", "/api/v1/providers/p1", "/api/v1/providers/p1/history", "/api/v1/placements", "/api/v1/policies",
		"/api/v1/flows", "/api/clusters",
	}
	all := func() (texts []string) {
		for _, path := range paths {
			texts = append(texts, c.do(call{path: path, token: "operator"}).body)
		}
		return texts
	}
	before := all()
	for _, who := range []call{{}, {certificate: "c1/liqo.io"}, {token: "operator"}} {
		for _, path := range paths {
			who.path = path
			c.do(who)
		}
	}
	for _, write := range []call{
		{path: "/api/v1/providers/p1/selected", body: `{"selected":false}`, certificate: "c1/liqo.io"},
		{path: "/api/v1/providers/p1/enabled", body: `{"enabled":false}`, token: "operator"},
	} {
		write.method = "PUT"
		require.Equal(t, 200, c.do(write).status, write.path)
	}
	require.Equal(t, before, all())
}
