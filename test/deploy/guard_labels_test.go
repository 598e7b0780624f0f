package deploy

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	netv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	authforge "github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication/forge"
	networkforge "github.com/liqotech/liqo/pkg/liqo-controller-manager/networking/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
)

var (
	secretsResource = corev1.SchemeGroupVersion.WithResource("secrets")
	reflectedKinds  = map[string]schema.GroupVersionResource{
		"Secret": secretsResource, "ConfigMap": corev1.SchemeGroupVersion.WithResource("configmaps"),
		"Service": corev1.SchemeGroupVersion.WithResource("services"),
		"Ingress": netv1.SchemeGroupVersion.WithResource("ingresses"), "ShadowPod": shadowPods,
		"ShadowEndpointSlice": offloadingv1beta1.SchemeGroupVersion.WithResource("shadowendpointslices"),
	}
)

// labelsOf returns the labels of a tenant's objects in a chain of brokers: of a pod that Liqo created from a ShadowPod
// there, of an EndpointSlice, and of a pod whose virtual node is not ready.
func labelsOf(more ...string) map[string]string {
	labels := map[string]string{
		"app": "web", "liqo.io/managed-by": "shadowpod", "liqo.io/managed": "true", "liqo.io/creator-user": "c1",
		"liqo.io/remote-unavailable": "true", "brokering.liqo.io/example": "x", "example.liqo.io.example.org/x": "y",
	}
	for _, key := range more {
		labels[key] = "true"
	}
	return labels
}

// reflections returns the objects that a consumer's Liqo virtual kubelet creates from a tenant's objects with these
// labels.
func reflections(t *testing.T, more ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	pod := at(func(p *corev1.Pod) { p.Labels = labelsOf(more...) })
	shadow := raw(t, forwarded(pod)) // This sets the ids of the clusters.
	meta := metav1.ObjectMeta{
		Name: "x", Namespace: "shop", Labels: labelsOf(more...),
		Annotations: map[string]string{"liqo.io/force-remote-node-port": "true", "liqo.io/skip-reflection": "false"},
	}
	none := &forge.ForgingOpts{}
	slice := forge.RemoteShadowEndpointSlice(&discoveryv1.EndpointSlice{ObjectMeta: meta}, nil, nil, offloaded,
		func(addresses []string) []string { return addresses }, none)
	slice.TypeMeta = metav1.TypeMeta{APIVersion: offloadingv1beta1.SchemeGroupVersion.String(), Kind: "ShadowEndpointSlice"}
	return map[string]*unstructured.Unstructured{
		"Secret":    applied(t, forge.RemoteSecret(&corev1.Secret{ObjectMeta: meta}, offloaded, none)),
		"ConfigMap": applied(t, forge.RemoteConfigMap(&corev1.ConfigMap{ObjectMeta: meta}, offloaded, none)),
		"Service":   applied(t, forge.RemoteService(&corev1.Service{ObjectMeta: meta}, offloaded, true, "", none)),
		"ShadowPod": shadow, "ShadowEndpointSlice": raw(t, slice),
	}
}

func TestReflectedObjectsAreNotLiqosOwn(t *testing.T) {
	plugin, without := guard(t), unguarded(t, "liqo-broker-labels")
	for kind, o := range reflections(t) {
		t.Run("reflected "+kind, func(t *testing.T) {
			require.Contains(t, o.GetLabels(), forge.LiqoOriginClusterIDKey)
			requireRefusal(t, write(t, plugin, theKubelet, reflectedKinds[kind], "", nil, o), "")
		})
	}
	token := &forge.ServiceAccountPodTokens{PodName: "web", ServiceAccountName: "default"}
	ofPod := applied(t, forge.RemoteServiceAccountSecret(token, "tokens", offloaded, "broker"))
	requireRefusal(t, write(t, plugin, theKubelet, secretsResource, "", nil, ofPod), "")
	// The labels of Liqo v0.9.4 (pkg/virtualKubelet/forge).
	for _, key := range []string{"origin", "destination", "nodename", "service-account-name", "service-account-for-pod-name"} {
		labelled("virtualkubelet.liqo.io/"+key, "x")(ofPod.Object)
	}
	requireRefusal(t, write(t, plugin, theKubelet, secretsResource, "", nil, ofPod), "")

	// The labels by which Liqo's controllers select objects in all namespaces.
	for _, key := range []string{
		"liqo.io/webhook", "liqo.io/identity-type", "liqo.io/remote-cluster-id", "liqo.io/nonce", "liqo.io/signed-nonce",
		"liqo.io/replication", "liqo.io/replicated", "networking.liqo.io/gateway-resource", "networking.liqo.io/active",
		"networking.liqo.io/component", "offloading.liqo.io/component", "liqo.io/shadowPod", "new.liqo.io/anything",
	} {
		because := "the label " + key
		for kind, o := range reflections(t, key) {
			if kind == "ShadowPod" && key == "liqo.io/shadowPod" {
				labelled(key, "true")(o.Object) // Liqo's virtual kubelet does not forward it.
			}
			t.Run(kind+" with "+key, func(t *testing.T) {
				resource, plain := reflectedKinds[kind], reflections(t)[kind]
				requireRefusal(t, write(t, without, theKubelet, resource, "", nil, o), "")
				for _, who := range []string{theKubelet, liqo, "an administrator"} {
					requireRefusal(t, write(t, plugin, who, resource, "", nil, o), because)
				}
				requireRefusal(t, write(t, plugin, theKubelet, resource, "", plain, o), because)
				requireRefusal(t, write(t, plugin, theKubelet, resource, "", o, o), "")
				requireRefusal(t, write(t, plugin, theKubelet, resource, "", o, plain), "")
				o.SetNamespace(elsewhere)
				requireRefusal(t, write(t, plugin, "an administrator", resource, "", nil, o), "")
			})
		}
	}
	for _, key := range []string{"liqo.io/webhook-service-name", "liqo.io/webhook"} {
		service := reflections(t)["Secret"]
		set("webhook", "metadata", "annotations", key)(service.Object)
		requireRefusal(t, write(t, plugin, theKubelet, secretsResource, "", nil, service), "the annotation "+key)
	}
}

// A user that peers a consumer may write the Secret with the nonce to its tenant namespace, and no other Secret that
// Liqo would find.
func TestWhoPeersWritesTheNonceOnly(t *testing.T) {
	plugin, without := guard(t), unguarded(t, "liqo-broker-labels")
	nonce := func(id string, more ...string) *unstructured.Unstructured {
		secret := authforge.Nonce(tenantNamespace)
		require.NoError(t, authforge.MutateNonce(secret, liqov1beta1.ClusterID(id)))
		for _, key := range more {
			secret.Labels[key] = "true"
		}
		return raw(t, secret)
	}
	signed := raw(t, authforge.SignedNonce("c1", tenantNamespace, "x"))
	signed.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	for name, tc := range map[string]struct {
		who     string
		secret  *unstructured.Unstructured
		because string
	}{
		"the nonce":                    {thePeeringUser, nonce("c1"), ""},
		"with Liqo's global label":     {thePeeringUser, nonce("c1", "liqo.io/managed"), ""},
		"the nonce of another":         {thePeeringUser, nonce("c2"), "the label liqo.io/remote-cluster-id"},
		"what Liqo would sign":         {thePeeringUser, signed, "the label liqo.io/signed-nonce"},
		"an identity":                  {thePeeringUser, nonce("c1", "liqo.io/identity-type"), "the label liqo.io/identity-type"},
		"a certificate of the webhook": {thePeeringUser, nonce("c1", "liqo.io/webhook"), "the label liqo.io/webhook"},
		"a key of the gateway": {
			thePeeringUser, nonce("c1", "networking.liqo.io/gateway-resource"), "the label networking.liqo.io/gateway-resource",
		},
		"Liqo's identity":           {liqo, nonce("c1", "liqo.io/identity-type"), ""},
		"the nonce that Liqo signs": {"an administrator", signed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			requireRefusal(t, write(t, without, tc.who, secretsResource, "", nil, tc.secret), "")
			requireRefusal(t, write(t, plugin, tc.who, secretsResource, "", nil, tc.secret), tc.because)
		})
	}
}

// A user that peers a consumer may connect its network, and no other cluster's: Liqo finds these objects by the id in
// their labels.
func TestWhoPeersConnectsNoOtherCluster(t *testing.T) {
	plugin, without := guard(t), unguarded(t, "liqo-broker-labels")
	// As Liqo's forge does, which asks an API server for the kind of the template.
	gateway := func(kind string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(networkingv1beta1.GroupVersion.WithKind(kind))
		o.SetNamespace(tenantNamespace)
		o.SetLabels(map[string]string{"liqo.io/remote-cluster-id": "c1"})
		return o
	}
	key, err := networkforge.PublicKey(tenantNamespace, nil, "c1", []byte("key"))
	require.NoError(t, err)
	for plural, o := range map[string]*unstructured.Unstructured{
		"configurations": raw(t, networkforge.Configuration("c1", tenantNamespace, "c1", []string{"10.0.0.0/16"}, "10.1.0.0/16")),
		"gatewayclients": gateway("GatewayClient"), "gatewayservers": gateway("GatewayServer"), "publickeies": raw(t, key),
	} {
		t.Run(plural, func(t *testing.T) {
			resource := o.GroupVersionKind().GroupVersion().WithResource(plural)
			others := o.DeepCopy()
			labelled("liqo.io/remote-cluster-id", "c2")(others.Object)
			const because = "the label liqo.io/remote-cluster-id must be c1"
			requireRefusal(t, write(t, without, thePeeringUser, resource, "", nil, others), "")
			for _, who := range []string{thePeeringUser, "c1"} {
				requireRefusal(t, write(t, plugin, who, resource, "", nil, o), "")
				requireRefusal(t, write(t, plugin, who, resource, "", nil, others), because)
				requireRefusal(t, write(t, plugin, who, resource, "", o, others), because)
				requireRefusal(t, write(t, plugin, who, resource, "", others, o), "")
			}
			requireRefusal(t, write(t, plugin, liqo, resource, "", nil, others), "")
		})
	}
}

// Liqo creates a Service for an IP from its template, and routes traffic to its address.
func TestPeersWriteNoIPs(t *testing.T) {
	ip := raw(t, &ipamv1alpha1.IP{
		TypeMeta:   metav1.TypeMeta{APIVersion: ipamv1alpha1.SchemeGroupVersion.String(), Kind: "IP"},
		ObjectMeta: metav1.ObjectMeta{Namespace: tenantNamespace, Name: "metadata"},
		Spec: ipamv1alpha1.IPSpec{IP: "169.254.169.254", ServiceTemplate: &ipamv1alpha1.ServiceTemplate{
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ExternalIPs: []string{"192.0.2.1"}},
		}},
	})
	resource := ipamv1alpha1.SchemeGroupVersion.WithResource("ips")
	requireRefusal(t, write(t, unguarded(t, "liqo-broker-labels"), thePeeringUser, resource, "", nil, ip), "")
	plugin := guard(t)
	for _, who := range []string{thePeeringUser, "c1"} {
		requireRefusal(t, write(t, plugin, who, resource, "", nil, ip), "a peer may not write IPs here")
		requireRefusal(t, write(t, plugin, who, resource, "", ip, ip), "a peer may not write IPs here")
	}
	for _, who := range []string{liqo, "an administrator"} { // Liqo's virtual kubelets, and the broker.
		requireRefusal(t, write(t, plugin, who, resource, "", nil, ip), "")
	}
}

func TestTheNumberOfLabelsIsBounded(t *testing.T) {
	plugin := guard(t)
	secret := reflections(t)["Secret"]
	began := time.Now()
	for count, because := range map[int]string{900: "", 20_000: "may have 1000 labels"} {
		many := secret.DeepCopy()
		for i := range count {
			labelled(fmt.Sprint("example.org/", i), "x")(many.Object)
		}
		requireRefusal(t, write(t, plugin, theKubelet, secretsResource, "", nil, many), because)
		requireRefusal(t, write(t, plugin, theKubelet, secretsResource, "", many, many), "")
	}
	require.Less(t, time.Since(began), 5*time.Second)
}
