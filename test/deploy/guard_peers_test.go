package deploy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	authforge "github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication/forge"
	networkforge "github.com/liqotech/liqo/pkg/liqo-controller-manager/networking/forge"
)

// in returns an object of a kind in a namespace.
func in(namespace, kind string, changes ...func(map[string]any)) *unstructured.Unstructured {
	o := map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": "x", "namespace": namespace}}
	for _, change := range changes {
		change(o)
	}
	return &unstructured.Unstructured{Object: o}
}

// nonceSecret returns the Secret that liqoctl creates for a nonce.
func nonceSecret(t *testing.T, changes ...func(map[string]any)) *unstructured.Unstructured {
	t.Helper()
	secret := authforge.Nonce(tenantNamespace)
	require.NoError(t, authforge.MutateNonce(secret, "c1"))
	o := raw(t, secret)
	for _, change := range changes {
		change(o.Object)
	}
	return o
}

// The broker and the virtual kubelets read the identity for a provider from a Secret with a known name.
func TestPeersReplaceNoIdentities(t *testing.T) {
	without, plugin := unguarded(t, "liqo-broker-labels", "liqo-broker-deletions"), guard(t)
	identity := in(tenantNamespace, "Secret", set("kubeconfig-resourceslice-pool", "metadata", "name"), set("eA==", "data", "kubeconfig"))
	for name, tc := range map[string]struct {
		secret  *unstructured.Unstructured
		because string
	}{
		"the nonce":             {nonceSecret(t), ""},
		"a kubeconfig":          {identity, "a peer may write no Secret here but the one in which Liqo puts its nonce"},
		"labelled as the nonce": {nonceSecret(t, set("eA==", "data", "kubeconfig")), "without data"},
		"which cannot change":   {nonceSecret(t, set(true, "immutable")), "not immutable"},
		"of a type":             {nonceSecret(t, set("kubernetes.io/service-account-token", "type")), "a peer may write no Secret here"},
		"with another label only": {
			nonceSecret(t, set(map[string]any{"app": "x"}, "metadata", "labels")), "a peer may write no Secret here",
		},
	} {
		t.Run(name, func(t *testing.T) {
			requireRefusal(t, write(t, without, thePeeringUser, secretsResource, "", nil, tc.secret), "")
			requireRefusal(t, write(t, plugin, thePeeringUser, secretsResource, "", nil, tc.secret), tc.because)
			requireRefusal(t, write(t, plugin, liqo, secretsResource, "", nil, tc.secret), "")
		})
	}
	const refused = "a peer may delete no Secret here but the one of its nonce"
	requireRefusal(t, remove(t, without, thePeeringUser, secretsResource, identity, metav1.DeleteOptions{}), "")
	requireRefusal(t, remove(t, plugin, thePeeringUser, secretsResource, identity, metav1.DeleteOptions{}), refused)
	requireRefusal(t, remove(t, plugin, theConsumer, secretsResource, identity, metav1.DeleteOptions{}), refused)
	requireRefusal(t, remove(t, plugin, thePeeringUser, secretsResource, nonceSecret(t), metav1.DeleteOptions{}), "")
	requireRefusal(t, remove(t, plugin, liqo, secretsResource, identity, metav1.DeleteOptions{}), "")
	requireRefusal(t, remove(t, plugin, theKubelet, secretsResource, in(offloaded, "Secret"), metav1.DeleteOptions{}), "")
}

// A pod uses quota as long as it exists.
func TestAShadowPodIsDeletedOnceAndWithItsPod(t *testing.T) {
	without, plugin := unguarded(t, "liqo-broker-deletions"), guard(t)
	const policy, again = "together with its pod only", "is being deleted already"
	running, ending := raw(t, forwarded(at())), raw(t, forwarded(at()))
	set("2026-03-01T00:00:00Z", "metadata", "deletionTimestamp")(ending.Object)
	uid := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("1")} // As Liqo's virtual kubelet does.
	by := func(policy metav1.DeletionPropagation) metav1.DeleteOptions {
		return metav1.DeleteOptions{PropagationPolicy: &policy}
	}
	for name, tc := range map[string]struct {
		shadow  *unstructured.Unstructured
		options metav1.DeleteOptions
		because string
	}{
		"as Liqo's virtual kubelet does": {running, uid, ""},
		"in the background":              {running, by(metav1.DeletePropagationBackground), ""},
		"and its pod stays":              {running, by(metav1.DeletePropagationOrphan), policy},
		"by the older field": {
			running, metav1.DeleteOptions{OrphanDependents: ptr.To(true)}, policy, //nolint:staticcheck // It is still accepted.
		},
		"after its pod": {running, by(metav1.DeletePropagationForeground), policy},
		"again":         {ending, uid, again},
	} {
		t.Run(name, func(t *testing.T) {
			requireRefusal(t, remove(t, without, theKubelet, shadowPods, tc.shadow, tc.options), "")
			requireRefusal(t, remove(t, plugin, theKubelet, shadowPods, tc.shadow, tc.options), tc.because)
			requireRefusal(t, remove(t, plugin, liqo, shadowPods, tc.shadow, tc.options), "")
			requireRefusal(t, remove(t, plugin, "an administrator", shadowPods, tc.shadow, tc.options), "")
		})
	}
}

// Kubernetes defaults the requests of a pod's container to its limits.
func TestShadowPodsRequestWhatTheyLimit(t *testing.T) {
	without, plugin := unguarded(t, "liqo-broker-shadowpods"), guard(t)
	const because = "has to request each resource that it limits"
	for where, containers := range map[string]string{"a container": "containers", "an init container": "initContainers"} {
		for name, tc := range map[string]struct {
			resources map[string]any
			because   string
		}{
			"requests": {map[string]any{"requests": map[string]any{"cpu": "1"}}, ""},
			"both":     {map[string]any{"requests": map[string]any{"cpu": "1"}, "limits": map[string]any{"cpu": "2"}}, ""},
			"limits":   {map[string]any{"limits": map[string]any{"cpu": "500"}}, because},
			"limits of one more": {
				map[string]any{"requests": map[string]any{"cpu": "1"}, "limits": map[string]any{"cpu": "2", "memory": "1Ti"}}, because,
			},
			"nothing": {map[string]any{}, ""},
			"requests of nothing": {
				map[string]any{"requests": map[string]any{}, "limits": map[string]any{"example.com/gpu": "8"}}, because,
			},
		} {
			t.Run(where+" "+name, func(t *testing.T) {
				shadow := raw(t, forwarded(at()))
				first := shadow.Object["spec"].(map[string]any)["pod"].(map[string]any)[containers].([]any)[0].(map[string]any)
				first["resources"] = tc.resources
				requireRefusal(t, write(t, without, theKubelet, shadowPods, "", nil, shadow), "")
				requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", nil, shadow), tc.because)
			})
		}
	}
}

// written returns objects of each kind that peers and consumers write, and the user that writes them.
func written(t *testing.T) map[string]struct {
	who      string
	resource schema.GroupVersionResource
	o        *unstructured.Unstructured
} {
	t.Helper()
	type object = struct {
		who      string
		resource schema.GroupVersionResource
		o        *unstructured.Unstructured
	}
	all := map[string]object{
		"ResourceSlice": {theConsumer, sliceVersion.WithResource("resourceslices"), slice()},
		"Renew":         {theConsumer, sliceVersion.WithResource("renews"), renew(t)},
		"NamespaceMap":  {theConsumer, namespaceMaps, namespaceMap()},
		"Tenant":        {thePeeringUser, sliceVersion.WithResource("tenants"), tenantOf()},
		"nonce":         {thePeeringUser, secretsResource, nonceSecret(t)},
	}
	for kind, o := range reflections(t) {
		all[kind] = object{theKubelet, reflectedKinds[kind], o}
	}
	return all
}

// Liqo's clients set neither.
func TestConsumersKeepNoObjectsAfterTheirEnd(t *testing.T) {
	without, plugin := unguarded(t, "liqo-broker-metadata"), guard(t)
	owner := []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}}
	for kind, tc := range written(t) {
		for field, value := range map[string]any{"finalizers": []any{"evil.example/keep"}, "ownerReferences": owner} {
			t.Run(kind+" with "+field, func(t *testing.T) {
				with := tc.o.DeepCopy()
				set(value, "metadata", field)(with.Object)
				because := "may give its objects here no " + field
				requireRefusal(t, write(t, without, tc.who, tc.resource, "", nil, with), "")
				requireRefusal(t, write(t, plugin, tc.who, tc.resource, "", nil, with), because)
				requireRefusal(t, write(t, plugin, tc.who, tc.resource, "", tc.o, with), because)
				requireRefusal(t, write(t, plugin, tc.who, tc.resource, "", with, with), "")
				requireRefusal(t, write(t, plugin, tc.who, tc.resource, "", with, tc.o), "")
				requireRefusal(t, write(t, plugin, liqo, tc.resource, "", tc.o, with), "")
			})
		}
	}
}

// The broker and the catalog cache these objects, and etcd keeps each of their versions.
func TestAnnotationsOfConsumersAreBounded(t *testing.T) {
	without := unguarded(t, "liqo-broker-metadata", "liqo-broker-assignments", "liqo-broker-shadowpods")
	plugin := guard(t)
	for kind, tc := range written(t) {
		limit := 65_000
		switch kind {
		case "ResourceSlice", "Renew", "NamespaceMap", "Tenant":
			limit = 16_000
		case "Secret", "ConfigMap", "nonce":
			continue // kubectl apply records the whole object there; Kubernetes allows 256 KiB.
		}
		t.Run(kind, func(t *testing.T) {
			few, many := tc.o.DeepCopy(), tc.o.DeepCopy()
			const key = "kubectl.kubernetes.io/last-applied-configuration"
			set(strings.Repeat("x", limit), "metadata", "annotations", key)(few.Object)
			set(strings.Repeat("\x01", 250_000), "metadata", "annotations", key)(many.Object)
			requireRefusal(t, write(t, without, tc.who, tc.resource, "", nil, many), "")
			requireRefusal(t, write(t, plugin, tc.who, tc.resource, "", nil, few), "")
			for _, old := range []*unstructured.Unstructured{nil, tc.o} {
				err := write(t, plugin, tc.who, tc.resource, "", old, many)
				require.Error(t, err)
				require.Regexp(t, "annotations", err.Error())
			}
			requireRefusal(t, write(t, plugin, tc.who, tc.resource, "", many, many), "")
			requireRefusal(t, write(t, plugin, tc.who, tc.resource, "", many, tc.o), "")
		})
	}
}

// A pod of this cluster's own tenants may be forwarded, too.
func TestAnnotationsOfPodsThatMayBeForwardedAreBounded(t *testing.T) {
	without, plugin := unguarded(t, "liqo-broker-assignments"), guard(t)
	fat := func(namespace string, size int) *unstructured.Unstructured {
		return in(namespace, "Pod", set(map[string]any{"a": strings.Repeat("x", size)}, "metadata", "annotations"))
	}
	const tenant, because = "a tenant", "with 64 KiB in all"
	requireRefusal(t, write(t, without, tenant, pods, "", nil, fat(offloaded, 250_000)), "")
	requireRefusal(t, write(t, plugin, tenant, pods, "", nil, fat(offloaded, 250_000)), because)
	requireRefusal(t, write(t, plugin, tenant, pods, "", fat(offloaded, 1), fat(offloaded, 250_000)), because)
	requireRefusal(t, write(t, plugin, tenant, pods, "", nil, fat(offloaded, 65_000)), "")
	requireRefusal(t, write(t, plugin, tenant, pods, "", nil, fat(elsewhere, 250_000)), "")
	requireRefusal(t, write(t, plugin, theBroker, pods, "", fat(offloaded, 250_000), fat(offloaded, 250_001)), "")
}

// Each chunk of a list, and each cache, must hold them.
func TestTheBytesOfAShadowPodAreBounded(t *testing.T) {
	without, plugin := unguarded(t, "liqo-broker-shadowpods"), guard(t)
	const because = "256 KiB of variables, commands and arguments"
	for name, tc := range map[string]struct {
		change  func(s *offloadingv1beta1.ShadowPod)
		because string
	}{
		"a long variable":   {func(s *offloadingv1beta1.ShadowPod) { env(s, 130_000) }, ""},
		"one of a megabyte": {func(s *offloadingv1beta1.ShadowPod) { env(s, 1_200_000) }, because},
		"several":           {func(s *offloadingv1beta1.ShadowPod) { env(s, 130_000); env(s, 130_000); env(s, 3_000) }, because},
		"a long argument": {func(s *offloadingv1beta1.ShadowPod) {
			s.Spec.Pod.Containers[0].Args = []string{strings.Repeat("x", 300_000)}
		}, because},
		"a long command": {func(s *offloadingv1beta1.ShadowPod) {
			s.Spec.Pod.InitContainers[0].Command = []string{strings.Repeat("x", 300_000)}
		}, because},
	} {
		t.Run(name, func(t *testing.T) {
			changed := forwarded(at())
			tc.change(changed)
			shadow, began := raw(t, changed), time.Now()
			requireRefusal(t, write(t, without, theKubelet, shadowPods, "", nil, shadow), "")
			requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", nil, shadow), tc.because)
			require.Less(t, time.Since(began), 5*time.Second)
		})
	}
}

func env(s *offloadingv1beta1.ShadowPod, size int) {
	c := &s.Spec.Pod.Containers[0]
	c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("V", len(c.Env)), Value: strings.Repeat("x", size)})
}

func TestTheNamesInANamespaceMapAreShort(t *testing.T) {
	without, plugin := unguarded(t, "liqo-broker-namespaces"), guard(t)
	const because = "with names of 63 characters"
	long := namespaceMap(set("x-c1", "spec", "desiredMapping", strings.Repeat("k", 1_400_000)))
	value := namespaceMap(mapped(strings.Repeat("v", 1_400_000) + "-c1"))
	for _, o := range []*unstructured.Unstructured{long, value} {
		requireRefusal(t, write(t, without, theConsumer, namespaceMaps, "", nil, o), "")
		requireRefusal(t, write(t, plugin, theConsumer, namespaceMaps, "", nil, o), because)
		requireRefusal(t, write(t, plugin, theConsumer, namespaceMaps, "", namespaceMap(), o), because)
		requireRefusal(t, write(t, plugin, liqo, namespaceMaps, "", o, o), "")
	}
	// Liqo reports in the status that the name is too long for a namespace, for this one alone.
	tooLong := namespaceMap(mapped(strings.Repeat("n", 63) + "-c1"))
	requireRefusal(t, write(t, plugin, theConsumer, namespaceMaps, "", namespaceMap(), tooLong), "")
	answer := set(map[string]any{"phase": "Terminating"}, "status", "currentMapping", strings.Repeat("k", 1_400_000))
	ours := func(changes ...func(map[string]any)) *unstructured.Unstructured {
		return namespaceMap(append([]func(map[string]any){set(map[string]any{"liqo.io/replication": "true"}, "metadata", "labels")},
			changes...)...)
	}
	requireRefusal(t, write(t, without, theReplicator, namespaceMaps, "status", ours(), ours(answer)), "")
	requireRefusal(t, write(t, plugin, theReplicator, namespaceMaps, "status", ours(), ours(answer)), because)
}

// A provider writes the status of the slices that this cluster sends to it.
func TestTheTextsOfAResourceSliceAreBounded(t *testing.T) {
	without, plugin := unguarded(t, "liqo-broker-offers"), guard(t)
	because := "may have 4096 characters in its message"
	fat := condition("Authentication", "Accepted")
	fat["message"] = strings.Repeat("x", 1_000_000)
	many := map[string]any{}
	for i := range 300 {
		many[fmt.Sprint("example.org/", i)] = "x"
	}
	for _, change := range []func(map[string]any){conditions(fat), set(many, "status", "nodeLabels")} {
		requireRefusal(t, ask(t, without, theReplicator, "status", sent("c1"), sent("c1", change)), "")
		requireRefusal(t, ask(t, plugin, theReplicator, "status", sent("c1"), sent("c1", change)), because)
		requireRefusal(t, ask(t, plugin, theReplicator, "", sent("c1", change), sent("c1", change, labelled("x", "y"))), "")
	}
	class := slice(set(strings.Repeat("x", 1_000_000), "spec", "class"))
	requireRefusal(t, ask(t, unguarded(t, "liqo-broker-offers", "liqo-broker-classes"), theConsumer, "", nil, class), "")
	requireRefusal(t, ask(t, unguarded(t, "liqo-broker-classes"), theConsumer, "", nil, class), because)
}

// The broker caches the EndpointSlices and Configurations that are created from these.
func TestTheListsOfConsumersAreBounded(t *testing.T) {
	without, plugin := unguarded(t, "liqo-broker-metadata"), guard(t)
	slices := reflectedKinds["ShadowEndpointSlice"]
	endpoints := func(count, addresses int) *unstructured.Unstructured {
		o, all := reflections(t)["ShadowEndpointSlice"].DeepCopy(), make([]any, count)
		for i := range all {
			own := make([]any, addresses)
			for j := range own {
				own[j] = "10.0.0.1"
			}
			all[i] = map[string]any{"addresses": own}
		}
		set(all, "spec", "template", "endpoints")(o.Object)
		return o
	}
	configurations := networkingv1beta1.GroupVersion.WithResource("configurations")
	ranges := func(count int) *unstructured.Unstructured {
		all := make([]string, count)
		for i := range all {
			all[i] = fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)
		}
		return raw(t, networkforge.Configuration("c1", tenantNamespace, "c1", all, "10.1.0.0/16"))
	}
	const because = "a ShadowEndpointSlice 1000 endpoints with 2 addresses each"
	for name, tc := range map[string]struct {
		who      string
		resource schema.GroupVersionResource
		o        *unstructured.Unstructured
		because  string
	}{
		"an EndpointSlice":        {theKubelet, slices, endpoints(1000, 1), ""},
		"of many endpoints":       {theKubelet, slices, endpoints(1001, 1), because},
		"of many addresses":       {theKubelet, slices, endpoints(1, 100), because},
		"a Configuration":         {thePeeringUser, configurations, ranges(99), ""},
		"of many ranges":          {thePeeringUser, configurations, ranges(10_000), because},
		"by Liqo, of many ranges": {liqo, configurations, ranges(10_000), ""},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			requireRefusal(t, write(t, without, tc.who, tc.resource, "", nil, tc.o), "")
			requireRefusal(t, write(t, plugin, tc.who, tc.resource, "", nil, tc.o), tc.because)
			requireRefusal(t, write(t, plugin, tc.who, tc.resource, "", tc.o, tc.o), "")
			require.Less(t, time.Since(began), 5*time.Second)
		})
	}
}

// tenantOf returns the Tenant that liqoctl creates for a peer, as the API server stores it.
func tenantOf(changes ...func(map[string]any)) *unstructured.Unstructured {
	o := map[string]any{
		"apiVersion": sliceVersion.String(), "kind": "Tenant",
		"metadata": map[string]any{"name": "c1", "namespace": tenantNamespace, "labels": map[string]any{"liqo.io/remote-cluster-id": "c1"}},
		"spec": map[string]any{
			"clusterID": "c1", "csr": honest(), "publicKey": "eA==", "signature": "eA==", "authzPolicy": "KeysExchange",
			"tenantCondition": "Active",
		},
	}
	for _, change := range changes {
		change(o)
	}
	return &unstructured.Unstructured{Object: o}
}

// Administrators of this cluster end a consumer's grants with its Tenant. The user that peers the consumer may write
// it, too.
func TestAPeerStaysDrained(t *testing.T) {
	without, plugin, tenants := unguarded(t, "liqo-broker-tenants", "liqo-broker-deletions"), guard(t), sliceVersion.WithResource("tenants")
	drained, tolerant := set("Drained", "spec", "tenantCondition"), set("TolerateNoHandshake", "spec", "authzPolicy")
	const condition, policy, another = "may change spec.tenantCondition", "spec.authzPolicy", "only the Tenant of c1"
	for name, tc := range map[string]struct {
		who      string
		old, new *unstructured.Unstructured
		because  string
	}{
		"it peers": {thePeeringUser, nil, tenantOf(), ""},
		"before the defaults are set": {
			thePeeringUser, nil, tenantOf(set(nil, "spec", "authzPolicy"), set(nil, "spec", "tenantCondition")), "",
		},
		"again, with another key":    {thePeeringUser, tenantOf(), tenantOf(set("eQ==", "spec", "publicKey")), ""},
		"while it is drained":        {thePeeringUser, tenantOf(drained), tenantOf(drained, set("eQ==", "spec", "publicKey")), ""},
		"an administrator drains it": {"an administrator", tenantOf(), tenantOf(drained), ""},
		"and uncordons it":           {"an administrator", tenantOf(drained), tenantOf(), ""},
		"it uncordons itself":        {thePeeringUser, tenantOf(drained), tenantOf(), condition},
		"by leaving it out":          {thePeeringUser, tenantOf(drained), tenantOf(set(nil, "spec", "tenantCondition")), condition},
		"by its control plane":       {theConsumer, tenantOf(drained), tenantOf(), condition},
		"it tolerates no handshake":  {thePeeringUser, tenantOf(), tenantOf(tolerant), policy},
		"from the beginning":         {thePeeringUser, nil, tenantOf(tolerant), policy},
		"it drains itself":           {thePeeringUser, tenantOf(), tenantOf(drained), condition},
		"it writes that of another": {
			thePeeringUser, nil, tenantOf(set("c2", "spec", "clusterID"), labelled("liqo.io/remote-cluster-id", "c2")), another,
		},
		"with the label of another": {thePeeringUser, tenantOf(), tenantOf(labelled("liqo.io/remote-cluster-id", "c2")), another},
		"a second one": {
			thePeeringUser, nil, tenantOf(set("another", "metadata", "name")), "a peer has one Tenant here, with the name c1",
		},
		"of another name, as before": {
			thePeeringUser, tenantOf(set("x", "metadata", "name")),
			tenantOf(set("x", "metadata", "name"), set("eQ==", "spec", "publicKey")), "",
		},
		"with a proxy of a megabyte": {
			thePeeringUser, nil, tenantOf(set(strings.Repeat("x", 1_000_000), "spec", "proxyURL")), "8192 characters",
		},
		"an administrator may do more": {"an administrator", nil, tenantOf(tolerant, set("c2", "spec", "clusterID")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			requireRefusal(t, write(t, without, tc.who, tenants, "", tc.old, tc.new), "")
			requireRefusal(t, write(t, plugin, tc.who, tenants, "", tc.old, tc.new), tc.because)
		})
	}
	const refused = "has cordoned or drained this Tenant"
	for _, state := range []string{"Drained", "Cordoned"} {
		stopped := tenantOf(set(state, "spec", "tenantCondition"))
		requireRefusal(t, remove(t, without, thePeeringUser, tenants, stopped, metav1.DeleteOptions{}), "")
		requireRefusal(t, remove(t, plugin, thePeeringUser, tenants, stopped, metav1.DeleteOptions{}), refused)
		requireRefusal(t, remove(t, plugin, "an administrator", tenants, stopped, metav1.DeleteOptions{}), "")
	}
	requireRefusal(t, remove(t, plugin, thePeeringUser, tenants, tenantOf(), metav1.DeleteOptions{}), "")
}

// The objects that this cluster sends to a provider are in that peer's tenant namespace. The peer may also be a
// consumer.
func TestPeersDeleteOnlyWhatTheySent(t *testing.T) {
	without, plugin := unguarded(t, "liqo-broker-deletions"), guard(t)
	ours := namespaceMap(set(map[string]any{"liqo.io/replication": "true", "liqo.io/remote-cluster-id": "c1"}, "metadata", "labels"))
	for _, tc := range []struct {
		resource  schema.GroupVersionResource
		its, ours *unstructured.Unstructured
	}{
		{sliceVersion.WithResource("resourceslices"), slice(), sent("c1")},
		{sliceVersion.WithResource("renews"), renew(t), renew(t, set(nil, "metadata", "labels"))},
		{namespaceMaps, namespaceMap(), ours},
	} {
		requireRefusal(t, remove(t, plugin, theConsumer, tc.resource, tc.its, metav1.DeleteOptions{}), "")
		requireRefusal(t, remove(t, without, theConsumer, tc.resource, tc.ours, metav1.DeleteOptions{}), "")
		requireRefusal(t, remove(t, plugin, theConsumer, tc.resource, tc.ours, metav1.DeleteOptions{}),
			"only what Liqo replicates from its cluster")
		requireRefusal(t, remove(t, plugin, liqo, tc.resource, tc.ours, metav1.DeleteOptions{}), "")
	}
	ip := in(tenantNamespace, "IP", set(ipamv1alpha1.SchemeGroupVersion.String(), "apiVersion"))
	ips := ipamv1alpha1.SchemeGroupVersion.WithResource("ips")
	requireRefusal(t, remove(t, without, thePeeringUser, ips, ip, metav1.DeleteOptions{}), "")
	requireRefusal(t, remove(t, plugin, thePeeringUser, ips, ip, metav1.DeleteOptions{}), "may delete no IPs here")
}
