package remap

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
)

// cluster is a Client with one IP, or none, and errors to return.
type cluster struct {
	ip                *ipamv1alpha1.IP
	deleted           int
	annotated         []map[string]any
	onDelete, onWrite error
}

func notFound() error { return kerrors.NewNotFound(schema.GroupResource{Resource: "ips"}, "p") }

func (c *cluster) GetIP(context.Context, types.NamespacedName) (*ipamv1alpha1.IP, error) {
	if c.ip == nil {
		return nil, notFound()
	}
	return c.ip, nil
}

func (c *cluster) DeleteIP(context.Context, *ipamv1alpha1.IP) error {
	c.deleted++
	return c.onDelete
}

func (c *cluster) Annotate(_ context.Context, _ *corev1.Pod, annotations map[string]any) error {
	c.annotated = append(c.annotated, annotations)
	return c.onWrite
}

func ip(address string, owners ...string) *ipamv1alpha1.IP {
	out := &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	out.Spec.IP = networkingv1beta1.IP(address)
	for _, name := range owners {
		out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{Kind: "Pod", Name: name})
	}
	return out
}

func pod(address string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}, Status: corev1.PodStatus{PodIP: address}}
}

func TestOnlyAnIPOfAPreviousAddressIsDeleted(t *testing.T) {
	now := metav1.Now()
	terminatingPod, terminatingIP := pod("10.0.0.2"), ip("10.0.0.1", "p")
	terminatingPod.DeletionTimestamp, terminatingIP.DeletionTimestamp = &now, &now
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		ip      *ipamv1alpha1.IP
		deleted int
	}{
		"of a previous address":        {pod("10.0.0.2"), ip("10.0.0.1", "p"), 1},
		"of this address":              {pod("10.0.0.2"), ip("10.0.0.2", "p"), 0},
		"of a pod without an address":  {pod(""), ip("10.0.0.1", "p"), 0},
		"of a pod that is terminating": {terminatingPod, ip("10.0.0.1", "p"), 0},
		"that is terminating":          {pod("10.0.0.2"), terminatingIP, 0},
		"that Liqo did not make":       {pod("10.0.0.2"), ip("10.0.0.1"), 0},
		"of another pod":               {pod("10.0.0.2"), ip("10.0.0.1", "q"), 0},
		"that does not exist":          {pod("10.0.0.2"), nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{ip: tc.ip}
			require.NoError(t, New(c).Remap(t.Context(), tc.pod))
			require.Equal(t, tc.deleted, c.deleted)
			require.Empty(t, c.annotated)
		})
	}
}

func TestAPodIsAnnotatedOnceWhenItsIPIsGone(t *testing.T) {
	c := &cluster{ip: ip("10.0.0.1", "p"), onDelete: notFound()}
	r := New(c)
	require.NoError(t, r.Remap(t.Context(), pod("10.0.0.2")), "another process may have deleted it")
	c.ip, c.onWrite = nil, errors.New("conflict")
	other := pod("10.0.0.2")
	other.UID = "2"
	require.NoError(t, r.Remap(t.Context(), other))
	require.Empty(t, c.annotated, "it was the IP of another pod of that name")

	require.ErrorIs(t, r.Remap(t.Context(), pod("10.0.0.2")), c.onWrite)
	c.onWrite = nil
	require.NoError(t, r.Remap(t.Context(), pod("10.0.0.2")))
	require.NoError(t, r.Remap(t.Context(), pod("10.0.0.2")))
	want := map[string]any{"brokering.liqo.io/address": "10.0.0.2"}
	require.Equal(t, []map[string]any{want, want}, c.annotated, "a failure is retried, a success is not repeated")

	c.ip, c.onDelete = ip("10.0.0.1", "p"), errors.New("forbidden")
	require.ErrorIs(t, r.Remap(t.Context(), pod("10.0.0.2")), c.onDelete)
	r.Forget(types.NamespacedName{Namespace: "ns", Name: "p"})
	c.ip = nil
	require.NoError(t, r.Remap(t.Context(), pod("10.0.0.2")))
	require.Len(t, c.annotated, 2)
}
