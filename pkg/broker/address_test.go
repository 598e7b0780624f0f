package broker

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

func TestAStaleAddressIsMappedAnew(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}, Status: corev1.PodStatus{PodIP: "10.0.0.2"},
	}
	ip := &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "2"},
		Spec:       ipamv1alpha1.IPSpec{IP: networkingv1beta1.IP("10.0.0.2")},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod, ip).Build()
	b := &Broker{client: c, core: newCore(&Config{}), log: logr.Discard(), metrics: newMetrics(), addresses: true}
	ctx := t.Context()

	require.NoError(t, b.remapAddress(ctx, pod))
	require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(ip), ip), "what is right stays")

	pod.Status.PodIP = "10.0.0.3"
	require.NoError(t, b.remapAddress(ctx, pod))
	require.True(t, kerrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(ip), ip)))
	require.NoError(t, b.remapAddress(ctx, pod))
	require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(pod), pod))
	require.Equal(t, "10.0.0.3", pod.Annotations[v1alpha1.AddressAnnotation], "Liqo is made to look at the pod")

	version := pod.ResourceVersion
	pod.Status.PodIP = "10.0.0.3"
	require.NoError(t, b.remapAddress(ctx, pod))
	require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(pod), pod))
	require.Equal(t, version, pod.ResourceVersion, "once")
}
