package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// kubelet sends kubectl's requests through the broker's node.
func (b *brokered) kubelet(t *testing.T) {
	ns := b.namespace(t)
	b.create(t, ns, "talker", 1, only("provider2"))
	b.create(t, ns, "homeless", 1, annotated(brokeringv1alpha1.FilterAnnotation, "false"))
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "talker-0", "provider2") })
	f := &federation{
		Sandbox: b.Sandbox, image: sandbox.ImageOurs, consumer: b.consumer, local: b.broker, remote: b.providers[1], node: brokerNode,
	}
	f.kubeletCalls(t, newPod(ns, "talker-0"))
	t.Run("a pod that is nowhere", func(t *testing.T) {
		b.explained(t, ns, "homeless-0", "NoProviderFits")
		_, err := b.broker.Kube.CoreV1().Pods(ns).GetLogs("homeless-0", &corev1.PodLogOptions{}).DoRaw(t.Context())
		assert.Error(t, err)
	})
	t.Run("a caller without credentials", func(t *testing.T) {
		httpClient := &http.Client{Transport: insecure(), Timeout: 10 * time.Second}
		for _, path := range []string{"/pods", "/containerLogs/" + ns + "/talker-0/main", "/stats/summary", "/metrics/resource"} {
			resp, err := httpClient.Get(f.kubeletURL(t) + path)
			require.NoError(t, err)
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, "%s: %s", path, body)
		}
	})
}

// service has two pods at one provider, one at another, and none at the third. Each provider sees all pods, each once,
// and its own pods at their own addresses, also after one of them has moved.
func (b *brokered) service(t *testing.T) {
	ns := b.namespace(t)
	svc := &corev1.Service{Spec: corev1.ServiceSpec{
		Selector: map[string]string{"service": "web"},
		Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(80)}},
	}}
	svc.Name, svc.Namespace = "web", ns
	require.NoError(t, b.broker.Client.Create(t.Context(), svc))
	serving := func(p *corev1.Pod) { p.Labels["service"] = "web" }
	b.create(t, ns, "one", 2, both(serving, only("provider1")))
	b.create(t, ns, "two", 1, both(serving, annotated(brokeringv1alpha1.FilterAnnotation, "provider.id != 'provider1'")))
	b.settle(t, ns, 3)
	b.expectService(t, ns, svc.Name)

	var two corev1.Pod
	require.NoError(t, b.broker.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "two-0"}, &two))
	first := two.Labels[brokeringv1alpha1.ProviderLabel]
	b.restore(t, first)
	b.decide(t, first, func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = true })
	second := map[string]string{"provider2": "provider3", "provider3": "provider2"}[first]
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "two-0", second) })
	b.settle(t, ns, 3)
	b.expectService(t, ns, svc.Name)
}

// expectService waits until every provider, and the broker's cluster, has exactly the pods of a namespace as endpoints.
func (b *brokered) expectService(t *testing.T, namespace, service string) {
	t.Helper()
	eventually(t, patient, func(ctx context.Context) error {
		list, err := pods(ctx, b.broker, namespace)
		if err != nil {
			return err
		}
		var here []string
		for i := range list {
			here = append(here, list[i].Status.PodIP)
		}
		if err := sees(ctx, b.broker, namespace, service, here); err != nil {
			return err
		}
		for _, provider := range b.providers {
			var want []string
			for i := range list {
				address, err := b.seenFrom(ctx, provider, &list[i])
				if err != nil {
					return err
				}
				want = append(want, address)
			}
			if err := sees(ctx, provider, b.broker.RemoteNamespace(namespace), service, want); err != nil {
				return err
			}
		}
		return nil
	})
}

func sees(ctx context.Context, c *sandbox.Cluster, namespace, service string, want []string) error {
	slices.Sort(want)
	got, err := readyEndpoints(ctx, c, namespace, service)
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("%s sees the endpoints %v, want %v", c.Name, got, want)
	}
	return err
}

// seenFrom returns the address at which a provider reaches a pod of the broker's cluster: the pod's own address if the
// pod runs there, else the address in the broker's external range that leads to it, as the provider sees that range.
func (b *brokered) seenFrom(ctx context.Context, provider *sandbox.Cluster, pod *corev1.Pod) (string, error) {
	if pod.Labels[brokeringv1alpha1.ProviderLabel] == provider.Name {
		var remote corev1.Pod
		key := client.ObjectKey{Namespace: b.broker.RemoteNamespace(pod.Namespace), Name: pod.Name}
		err := provider.Client.Get(ctx, key, &remote)
		return remote.Status.PodIP, err
	}
	var ip ipamv1alpha1.IP
	if err := b.broker.Client.Get(ctx, client.ObjectKeyFromObject(pod), &ip); err != nil {
		return "", err
	}
	if string(ip.Spec.IP) != pod.Status.PodIP {
		return "", fmt.Errorf("the IP of pod %s is for %s, the pod has %s", pod.Name, ip.Spec.IP, pod.Status.PodIP)
	}
	var conf networkingv1beta1.Configuration
	key := client.ObjectKey{Namespace: "liqo-tenant-" + sandbox.Broker, Name: sandbox.Broker}
	if err := provider.Client.Get(ctx, key, &conf); err != nil {
		return "", err
	}
	external, err := netip.ParsePrefix(string(conf.Status.Remote.CIDR.External[0]))
	if err != nil {
		return "", err
	}
	address, err := netip.ParseAddr(string(ip.Status.IP))
	if err != nil {
		return "", err
	}
	moved, prefix := address.As4(), external.Addr().As4()
	moved[0], moved[1] = prefix[0], prefix[1]
	return netip.AddrFrom4(moved).String(), nil
}
