package kubectl

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// terminal has the output that a person sees.
type terminal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (t *terminal) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(b)
}

// lines returns the output since the last call, with repeated spaces joined.
func (t *terminal) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for line := range strings.Lines(t.text.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	t.text.Reset()
	return lines
}

// at returns a session with a broker's cluster whose requests may fail.
func at(t *testing.T, wrong interceptor.Funcs, objects ...client.Object) (*Session, *terminal) {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	screen := &terminal{}
	return &Session{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.ProviderCluster{}).
			WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
			WithInterceptorFuncs(wrong).Build(),
		Namespace: "ns", RequestTimeout: 30 * time.Second, Now: time.Now, Out: screen, Err: screen,
	}, screen
}

func noFaults() interceptor.Funcs { return interceptor.Funcs{} }

func provider(id string) *v1alpha1.ProviderCluster {
	return &v1alpha1.ProviderCluster{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Status: v1alpha1.ProviderClusterStatus{
			Conditions:   []metav1.Condition{{Type: v1alpha1.ProviderReady, Status: metav1.ConditionTrue}},
			VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: id + "-a", Ready: true}},
		},
	}
}

func consumers(name, id string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{consts.RemoteClusterID: id},
		Annotations: map[string]string{consts.RemoteNamespaceManagedByAnnotationKey: "liqo-tenant/" + id},
	}}
}

// placed is a pod that runs at a provider; at none, it waits.
func placed(name, provider string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: "broker", Containers: []corev1.Container{{Name: "c"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	if provider != "" {
		place(pod, provider)
	}
	return pod
}

func place(pod *corev1.Pod, provider string) {
	pod.Labels[v1alpha1.ProviderLabel], pod.Labels[v1alpha1.VirtualNodeLabel] = provider, provider+"-a"
	delete(pod.Annotations, v1alpha1.MovingFromAnnotation)
	pod.Annotations[v1alpha1.DecisionAnnotation] = provider + " 80: free 80"
	pod.Status.Phase = corev1.PodRunning
}

func leave(pod *corev1.Pod, provider string) {
	delete(pod.Labels, v1alpha1.ProviderLabel)
	delete(pod.Labels, v1alpha1.VirtualNodeLabel)
	pod.Annotations[v1alpha1.MovingFromAnnotation] = provider + "-a"
	pod.Annotations[v1alpha1.DecisionAnnotation] = "moving: it is drained"
}

// write writes an object and its status, which the API keeps apart.
func (s *Session) write(t *testing.T, o client.Object) {
	t.Helper()
	status := o.DeepCopyObject().(client.Object)
	require.NoError(t, s.Client.Update(t.Context(), o))
	status.SetResourceVersion(o.GetResourceVersion())
	require.NoError(t, s.Client.Status().Update(t.Context(), status))
}

// calls records the requests to the API.
type calls struct {
	mu   sync.Mutex
	made []string
}

func (c *calls) add(verb string, o any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := fmt.Sprintf("%T", o)
	if list, ok := o.(*metav1.PartialObjectMetadataList); ok {
		name = list.Kind
	}
	name = strings.TrimSuffix(name[strings.LastIndex(name, ".")+1:], "List")
	if call := verb + " " + name; !slices.Contains(c.made, call) {
		c.made = append(c.made, call)
	}
}

func (c *calls) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, under client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			c.add("get", o)
			return under.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, under client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			c.add("list", list)
			return under.List(ctx, list, opts...)
		},
		Patch: func(ctx context.Context, under client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			c.add("patch", o)
			return under.Patch(ctx, o, patch, opts...)
		},
		Create: func(ctx context.Context, under client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			c.add("create", o)
			switch review := o.(type) {
			case *authorizationv1.SelfSubjectAccessReview: // Not stored.
				review.Status.Allowed = true
				return nil
			case *authenticationv1.SelfSubjectReview:
				return nil
			}
			return under.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, under client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			c.add("update", o)
			return under.Update(ctx, o, opts...)
		},
	}
}
