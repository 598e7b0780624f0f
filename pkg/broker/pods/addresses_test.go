package pods

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func TestAStaleAddressIsMappedAgain(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}, Status: corev1.PodStatus{PodIP: "10.0.0.2"},
	}
	ip := &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", UID: "2",
			OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "p"}},
		},
		Spec: ipamv1alpha1.IPSpec{IP: networkingv1beta1.IP("10.0.0.2")},
	}
	c := newController(t, false, interceptor.Funcs{}, nil, pod, ip)
	ctx, name := t.Context(), client.ObjectKey{Namespace: "ns", Name: "p"}
	require.NoError(t, c.Client.Get(ctx, name, pod))
	pod.Status.PodIP = "10.0.0.3"
	require.NoError(t, c.remapAddress(ctx, pod))
	require.NoError(t, c.Client.Get(ctx, name, ip), "without the networking module there is nothing to do")

	c.MapsAddresses = true
	pod.Status.PodIP = "10.0.0.2"
	require.NoError(t, c.remapAddress(ctx, pod))
	require.NoError(t, c.Client.Get(ctx, name, ip), "what is right stays")
	pod.Status.PodIP = "10.0.0.3"
	require.NoError(t, c.remapAddress(ctx, pod))
	require.True(t, kerrors.IsNotFound(c.Client.Get(ctx, name, ip)))
	require.NoError(t, c.remapAddress(ctx, pod))
	require.NoError(t, c.Client.Get(ctx, name, pod))
	require.Equal(t, "10.0.0.3", pod.Annotations[v1alpha1.AddressAnnotation], "Liqo reconciles the pod")

	version := pod.ResourceVersion
	pod.Status.PodIP = "10.0.0.3"
	require.NoError(t, c.remapAddress(ctx, pod))
	require.NoError(t, c.Client.Get(ctx, name, pod))
	require.Equal(t, version, pod.ResourceVersion, "once")

	require.NoError(t, c.Client.Create(ctx, &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}))
	require.NoError(t, c.forgetAddress(ctx, pod))
	require.NoError(t, c.forgetAddress(ctx, pod), "it is gone already")
}
