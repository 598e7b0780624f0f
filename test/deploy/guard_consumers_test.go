package deploy

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	netv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
)

var namespaceMaps = offloadingv1beta1.NamespaceMapGroupVersionResource

// namespaceMap returns a NamespaceMap as a consumer's replicator writes it in the broker's cluster.
func namespaceMap(changes ...func(map[string]any)) *unstructured.Unstructured {
	o := map[string]any{
		"apiVersion": offloadingv1beta1.SchemeGroupVersion.String(), "kind": "NamespaceMap",
		"metadata": map[string]any{"name": "broker", "namespace": tenantNamespace, "labels": replicated()},
		"spec":     map[string]any{"desiredMapping": map[string]any{"shop": "shop-c1", "liqo-demo": "liqo-demo-c1"}},
	}
	for _, change := range changes {
		change(o)
	}
	return &unstructured.Unstructured{Object: o}
}

// mapped maps another namespace in the spec; current maps one in the status.
func mapped(name string) func(map[string]any) { return set(name, "spec", "desiredMapping", "x") }

func current(name string) func(map[string]any) {
	return set(map[string]any{"remoteNamespace": name, "phase": "Accepted"}, "status", "currentMapping", "x")
}

// reported sets the status of a map of this cluster, with the phase of the only namespace that it asks the provider
// for.
func reported(key, name, phase string) func(map[string]any) {
	return set(map[string]any{"remoteNamespace": name, "phase": phase}, "status", "currentMapping", key)
}

// A provider writes the status of the replica in its cluster, and Liqo's replicator copies it here (updateObjectStatus
// in internal/crdReplicator/reflection/handler.go of Liqo v1.2.0).
func TestProvidersAcceptOnlyNamespacesThatTheyWereAskedFor(t *testing.T) {
	const refused, accepted, terminating = "did not ask for that in spec.desiredMapping", "Accepted", "Terminating"
	ours := func(changes ...func(map[string]any)) *unstructured.Unstructured {
		return namespaceMap(append([]func(map[string]any){
			set(map[string]any{"liqo.io/replication": "true", "liqo.io/remote-cluster-id": "c1", "liqo.io/remoteID": "c1"},
				"metadata", "labels"),
			set(map[string]any{"future-c2": "future-c2-broker"}, "spec", "desiredMapping"),
		}, changes...)...)
	}
	mine := func(phase string) func(map[string]any) { return reported("future-c2", "future-c2-broker", phase) }
	stolen, unasked := reported("kube-system", "x", accepted), set(nil, "spec", "desiredMapping")
	plugin, without := guard(t), unguarded(t, "liqo-broker-namespaces")
	for what, tc := range map[string]struct {
		subresource string
		old, new    *unstructured.Unstructured
		because     string
	}{
		"as the provider accepts it":   {"status", ours(), ours(mine(accepted)), ""},
		"after it could not":           {"status", ours(mine("CreationLoopBackOff")), ours(mine(accepted)), ""},
		"it cannot any more":           {"status", ours(mine(accepted)), ours(mine("CreationLoopBackOff")), ""},
		"the spec asks for it no more": {"", ours(mine(accepted)), ours(mine(accepted), unasked), ""},
		"before the provider knows": {
			"status", ours(unasked, mine(accepted)), ours(unasked, mine(accepted), reported("y", "y", terminating)), "",
		},
		"then it is terminated":         {"status", ours(unasked, mine(accepted)), ours(unasked, mine(terminating)), ""},
		"also what was never seen here": {"status", ours(unasked), ours(unasked, mine(terminating)), ""},
		"then it is gone":               {"status", ours(unasked, mine(terminating)), ours(unasked), ""},
		"beside another that it is asked for": {
			"status", ours(mine(terminating), mapped("x-broker")), ours(mine(accepted), mapped("x-broker"), current("x-broker")), "",
		},
		"what was there before the guard": {"status", ours(stolen), ours(stolen, mine(accepted)), ""},
		"is taken away":                   {"status", ours(stolen), ours(), ""},
		"a namespace of the system":       {"status", ours(), ours(stolen), refused},
		"beside what it is asked for":     {"status", ours(mine(accepted)), ours(mine(accepted), stolen), refused},
		"of another consumer":             {"status", ours(), ours(reported("shop-c9", "shop-c9-broker", accepted)), refused},
		"by another name there":           {"status", ours(), ours(reported("future-c2", "other", accepted)), refused},
		"by another name later":           {"status", ours(mine(accepted)), ours(reported("future-c2", "other", accepted)), refused},
		"without a name": {
			"status", ours(), ours(set(accepted, "status", "currentMapping", "future-c2", "phase")), refused,
		},
		"of the system without a name": {
			"status", ours(), ours(set(accepted, "status", "currentMapping", "kube-system", "phase")), refused,
		},
		"what it is not asked for any more": {"status", ours(unasked), ours(unasked, mine(accepted)), refused},
		"again":                             {"status", ours(unasked, mine(terminating)), ours(unasked, mine(accepted)), refused},
		"as long as it was not there, elsewhere": {
			"status", ours(unasked, mine(accepted)), ours(unasked, reported("future-c2", "other", accepted)), refused,
		},
	} {
		t.Run(what, func(t *testing.T) {
			for _, who := range []string{theReplicator, "an administrator"} {
				requireRefusal(t, write(t, without, who, namespaceMaps, tc.subresource, tc.old, tc.new), "")
				requireRefusal(t, write(t, plugin, who, namespaceMaps, tc.subresource, tc.old, tc.new), tc.because)
			}
		})
	}
	for count, because := range map[int]string{2000: "", 20_000: "have 4000 in its status"} {
		desired, all := map[string]any{}, map[string]any{}
		for i := range count {
			name := fmt.Sprint(i)
			desired[name], all[name] = name, map[string]any{"remoteNamespace": name, "phase": accepted}
		}
		asked, began := ours(set(desired, "spec", "desiredMapping")), time.Now()
		answered := ours(set(desired, "spec", "desiredMapping"), set(all, "status", "currentMapping"))
		requireRefusal(t, write(t, plugin, theReplicator, namespaceMaps, "status", asked, answered), because)
		require.Less(t, time.Since(began), 5*time.Second)
	}
}

func labelled(key string, value any) func(map[string]any) {
	return set(value, "metadata", "labels", key)
}

func TestConsumersMapTheirOwnNamespacesOnly(t *testing.T) {
	const (
		name, theLabels = "a consumer may have no namespace ", "a consumer may write only the NamespaceMaps that Liqo replicates"
		status          = "only Liqo may write the status of a NamespaceMap"
	)
	// A map of this cluster for a provider that is also a consumer.
	ours := func(changes ...func(map[string]any)) *unstructured.Unstructured {
		return namespaceMap(append([]func(map[string]any){
			set(map[string]any{"liqo.io/replication": "true", "liqo.io/remote-cluster-id": "c1", "liqo.io/remoteID": "c1"},
				"metadata", "labels"),
			set(map[string]any{"future-c2": "future-c2-broker"}, "spec", "desiredMapping"),
		}, changes...)...)
	}
	plugin, without, same := guard(t), unguarded(t, "liqo-broker-namespaces"), guardWith(t, "sameNames", true)
	for what, tc := range map[string]struct {
		who, subresource string
		old, new         *unstructured.Unstructured
		because          string
		// same is whether the value guard.sameNames allows it.
		same bool
	}{
		"what its replicator creates": {who: theConsumer, new: namespaceMap()},
		"without a namespace":         {who: theConsumer, new: namespaceMap(set(nil, "spec", "desiredMapping"))},
		"one more":                    {who: theConsumer, old: namespaceMap(), new: namespaceMap(mapped("more-c1"))},
		"one that it selected":        {who: theConsumer, old: namespaceMap(), new: namespaceMap(mapped("other-name-c1"))},
		"Liqo's finalizer":            {who: liqo, old: namespaceMap(), new: namespaceMap(set([]any{"x"}, "metadata", "finalizers"))},
		"Liqo's status":               {who: liqo, subresource: "status", old: namespaceMap(), new: namespaceMap(current("shop-c1"))},
		"ours":                        {who: liqo, new: ours()},
		"that of another consumer":    {theConsumer, "", namespaceMap(), namespaceMap(mapped("future-c2")), name + "future-c2", true},
		"when it creates the map":     {theConsumer, "", nil, namespaceMap(mapped("future-c2")), name + "future-c2", true},
		"without a dash":              {theConsumer, "", nil, namespaceMap(mapped("futurec1")), name + "futurec1", true},
		"the same name":               {theConsumer, "", nil, namespaceMap(mapped("x")), name + "x", true},
		"one of the system": {
			theConsumer, "", nil, namespaceMap(mapped("kube-anything-c1")), name + "kube-anything-c1", false,
		},
		"a tenant namespace": {
			theConsumer, "", nil, namespaceMap(mapped("liqo-tenant-c9-c1")), name + "liqo-tenant-c9-c1", false,
		},
		"Liqo's":                          {theConsumer, "", nil, namespaceMap(mapped("liqo")), name + "liqo", false},
		"the broker's":                    {theConsumer, "", nil, namespaceMap(mapped("liqo-broker")), name + "liqo-broker", false},
		"whoever writes it":               {theReplicator, "", nil, namespaceMap(mapped("future-c2")), name + "future-c2", true},
		"what is there may be taken away": {who: theConsumer, old: namespaceMap(mapped("kube-x")), new: namespaceMap()},
		"or stay": {
			who: theConsumer, old: namespaceMap(mapped("kube-x")),
			new: namespaceMap(mapped("kube-x"), set("a-c1", "spec", "desiredMapping", "a")),
		},
		"the status":                   {theConsumer, "status", namespaceMap(), namespaceMap(current("kube-system")), status, false},
		"the status, by who peers":     {thePeeringUser, "status", namespaceMap(), namespaceMap(current("kube-system")), status, false},
		"a map that is not replicated": {theConsumer, "", nil, namespaceMap(labelled("liqo.io/replicated", nil)), theLabels, false},
		"that asks to be replicated":   {theConsumer, "", nil, namespaceMap(labelled("liqo.io/replication", "true")), theLabels, false},
		"of another origin":            {theConsumer, "", nil, namespaceMap(labelled("liqo.io/originID", "c2")), theLabels, false},
		"of another cluster": {
			theConsumer, "", nil, namespaceMap(labelled("liqo.io/remote-cluster-id", "p1")), theLabels, false,
		},
		"for itself":                  {theConsumer, "", nil, namespaceMap(labelled("liqo.io/remoteID", "c1")), theLabels, false},
		"ours, by the peer":           {theConsumer, "", ours(), ours(set("liqo", "spec", "desiredMapping", "liqo")), theLabels, false},
		"ours, as if it were its own": {theConsumer, "", ours(), namespaceMap(), theLabels, false},
		"the status of ours":          {theConsumer, "status", ours(), ours(current("stolen")), theLabels, false},
	} {
		t.Run(what, func(t *testing.T) {
			requireRefusal(t, write(t, without, tc.who, namespaceMaps, tc.subresource, tc.old, tc.new), "")
			requireRefusal(t, write(t, plugin, tc.who, namespaceMaps, tc.subresource, tc.old, tc.new), tc.because)
			if tc.same {
				tc.because = ""
			}
			requireRefusal(t, write(t, same, tc.who, namespaceMaps, tc.subresource, tc.old, tc.new), tc.because)
		})
	}
	all := map[string]any{}
	for i := range 2000 {
		all[fmt.Sprint(i)] = fmt.Sprint(i, "-c1")
	}
	began := time.Now()
	requireRefusal(t, write(t, plugin, theConsumer, namespaceMaps, "", nil, namespaceMap(set(all, "spec", "desiredMapping"))), "")
	all["more"] = "more-c1"
	requireRefusal(t, write(t, plugin, theConsumer, namespaceMaps, "", nil, namespaceMap(set(all, "spec", "desiredMapping"))),
		"may map 2000 namespaces")
	require.Less(t, time.Since(began), 5*time.Second)
}

func TestConsumersOpenNothingToTheOutside(t *testing.T) {
	forge.Init("c1", "broker", "broker", "10.0.0.1")
	service := func(kind corev1.ServiceType, changes ...func(map[string]any)) *unstructured.Unstructured {
		local := &corev1.Service{Spec: corev1.ServiceSpec{
			Type: kind, ExternalIPs: []string{"192.0.2.1"}, LoadBalancerIP: "192.0.2.1", Ports: []corev1.ServicePort{{Port: 80}},
		}}
		local.Name = "web"
		return applied(t, forge.RemoteService(local, offloaded, false, "", &forge.ForgingOpts{}), changes...)
	}
	ingress := func(changes ...func(map[string]any)) *unstructured.Unstructured {
		local := &netv1.Ingress{Spec: netv1.IngressSpec{Rules: []netv1.IngressRule{{Host: "bank.example.com"}}}}
		local.Name = "site"
		return applied(t, forge.RemoteIngress(local, offloaded, true, "nginx", &forge.ForgingOpts{}), changes...)
	}
	in := func(namespace string) func(map[string]any) { return set(namespace, "metadata", "namespace") }
	external, balanced := set([]any{"10.0.0.1"}, "spec", "externalIPs"), set("10.0.0.1", "spec", "loadBalancerIP")
	const (
		addresses, none = "a consumer may not choose addresses of its Services here", "a consumer may have no Ingresses here"
		unknown         = "may not have the annotation metallb.io/loadBalancerIPs"
	)
	plugin, without, open := guard(t), unguarded(t, "liqo-broker-exposure"), guardWith(t, "ingresses", true)
	for name, tc := range map[string]struct {
		who      string
		old, new *unstructured.Unstructured
		because  string
		open     bool
	}{
		"a Service as Liqo reflects it": {who: theKubelet, new: service(corev1.ServiceTypeClusterIP)},
		"at the ports of nodes":         {who: theKubelet, new: service(corev1.ServiceTypeNodePort)},
		"at a load balancer":            {who: theKubelet, new: service(corev1.ServiceTypeLoadBalancer)},
		"at addresses of its choice":    {theKubelet, nil, service(corev1.ServiceTypeClusterIP, external), addresses, false},
		"later": {
			theKubelet, service(corev1.ServiceTypeClusterIP), service(corev1.ServiceTypeClusterIP, external), addresses, false,
		},
		"at an address of the load balancer": {theKubelet, nil, service(corev1.ServiceTypeLoadBalancer, balanced), addresses, false},
		"at an address of MetalLB": {
			theKubelet, nil, service(corev1.ServiceTypeLoadBalancer, annotated("metallb.io/loadBalancerIPs")), unknown, false,
		},
		"of any type": {
			theKubelet, nil, service(corev1.ServiceTypeClusterIP, annotated("metallb.io/loadBalancerIPs")), unknown, false,
		},
		"later, of MetalLB": {
			theKubelet, service(corev1.ServiceTypeLoadBalancer),
			service(corev1.ServiceTypeLoadBalancer, annotated("metallb.io/loadBalancerIPs")), unknown, false,
		},
		"of MetalLB, which is there": {
			who: theKubelet, old: service(corev1.ServiceTypeLoadBalancer, annotated("metallb.io/address-pool")),
			new: service(corev1.ServiceTypeLoadBalancer, annotated("metallb.io/address-pool"), labelled("a", "b")),
		},
		"of MetalLB, by somebody else": {
			who: "an administrator", new: service(corev1.ServiceTypeLoadBalancer, annotated("metallb.io/loadBalancerIPs")),
		},
		"which are there": {
			who: theKubelet, old: service(corev1.ServiceTypeClusterIP, external),
			new: service(corev1.ServiceTypeClusterIP, external, labelled("a", "b")),
		},
		"which are taken away": {
			who: theKubelet, old: service(corev1.ServiceTypeClusterIP, external), new: service(corev1.ServiceTypeClusterIP),
		},
		"in a namespace that just arrived": {
			theKubelet, nil, service(corev1.ServiceTypeClusterIP, in(arrived), external), addresses, false,
		},
		"by somebody else":                    {who: "an administrator", new: service(corev1.ServiceTypeClusterIP, external)},
		"in a namespace of this cluster":      {who: theKubelet, new: service(corev1.ServiceTypeClusterIP, in(elsewhere), external)},
		"an Ingress":                          {theKubelet, nil, ingress(), none, true},
		"another host":                        {theKubelet, ingress(), ingress(set([]any{}, "spec", "rules")), none, true},
		"an Ingress that is there is deleted": {who: theKubelet, old: ingress(), new: ingress(set([]any{}, "metadata", "finalizers"))},
		"an Ingress by somebody else":         {who: "an administrator", new: ingress()},
	} {
		t.Run(name, func(t *testing.T) {
			resource := corev1.SchemeGroupVersion.WithResource("services")
			if tc.new.GetKind() == "Ingress" {
				resource = netv1.SchemeGroupVersion.WithResource("ingresses")
			}
			requireRefusal(t, write(t, without, tc.who, resource, "", tc.old, tc.new), "")
			requireRefusal(t, write(t, plugin, tc.who, resource, "", tc.old, tc.new), tc.because)
			if tc.open {
				tc.because = ""
			}
			requireRefusal(t, write(t, open, tc.who, resource, "", tc.old, tc.new), tc.because)
		})
	}
}

// annotated sets an annotation on an object.
func annotated(key string) func(map[string]any) {
	return set("10.0.0.1", "metadata", "annotations", key)
}

// Load balancers, meshes and DNS controllers take addresses, names and whole load balancers of others from annotations
// with arbitrary names.
func TestServicesOfConsumersHaveKnownAnnotationsOnly(t *testing.T) {
	forge.Init("c1", "broker", "broker", "10.0.0.1")
	plugin, without, services := guard(t), unguarded(t, "liqo-broker-exposure"), corev1.SchemeGroupVersion.WithResource("services")
	permitting := guardWith(t, "serviceAnnotations", []any{"example.org/owner", "service.beta.kubernetes.io/aws-load-balancer-*"})
	annotatedService := func(keys ...string) *unstructured.Unstructured {
		local := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}}}
		local.Name, local.Annotations = "web", map[string]string{}
		for _, key := range keys {
			local.Annotations[key] = "x"
		}
		return applied(t, forge.RemoteService(local, offloaded, false, "", &forge.ForgingOpts{}))
	}
	for _, key := range []string{
		"metallb.io/loadBalancerIPs", "lbipam.cilium.io/ips", "METALLB.io/LoadBalancerIPs", "kube-vip.io/requestedIP", "kube-vip.io/hwaddr",
		"kubernetes.io/elb.id", "load-balancer.hetzner.cloud/name", "oci.oraclecloud.com/oci-network-security-groups",
		"service.beta.kubernetes.io/oci-load-balancer-subnet1", "service.beta.kubernetes.io/azure-dns-label-name",
		"service.beta.kubernetes.io/aws-load-balancer-name", "loadbalancer.openstack.org/port-id", "dns.alpha.kubernetes.io/external",
		"external-dns.alpha.kubernetes.io/hostname", "getambassador.io/config", "tailscale.com/expose", "consul.hashicorp.com/service-name",
		"service.cilium.io/global", "io.cilium/global-service", "prometheus.io/scrape", "example.org/owner", "evil-liqo.io/x",
	} {
		service := annotatedService("description", key)
		requireRefusal(t, write(t, without, theKubelet, services, "", nil, service), "")
		requireRefusal(t, write(t, plugin, theKubelet, services, "", nil, service), "may not have the annotation "+key)
		requireRefusal(t, write(t, plugin, theKubelet, services, "", annotatedService(), service), "may not have the annotation "+key)
		requireRefusal(t, write(t, plugin, theKubelet, services, "", service, service), "")
		requireRefusal(t, write(t, plugin, liqo, services, "", nil, service), "")
	}
	for _, key := range []string{"example.org/owner", "service.beta.kubernetes.io/aws-load-balancer-name"} {
		requireRefusal(t, write(t, permitting, theKubelet, services, "", nil, annotatedService(key)), "")
	}
	requireRefusal(t, write(t, permitting, theKubelet, services, "", nil, annotatedService("example.org/owners")), "example.org/owners")
	// Annotations of tools, and those that the consumer's load balancers write.
	for _, key := range []string{
		"kubectl.kubernetes.io/last-applied-configuration", "meta.helm.sh/release-name", "meta.helm.sh/release-namespace", "description",
		"metallb.io/ip-allocated-from-pool", "metallb.universe.tf/ip-allocated-from-pool", "service.kubernetes.io/topology-mode",
		"liqo.io/force-remote-node-port", "argocd.argoproj.io/tracking-id", "offloading.liqo.io/x",
	} {
		requireRefusal(t, write(t, plugin, theKubelet, services, "", nil, annotatedService(key)), "")
	}
	many := make([]string, 20_000)
	for i := range many {
		many[i] = fmt.Sprint("metallb.io/ips-", i)
	}
	began := time.Now()
	require.ErrorContains(t, write(t, plugin, theKubelet, services, "", nil, annotatedService(many...)), "1000 annotations")
	require.Less(t, time.Since(began), 5*time.Second)
}

func TestConsumersChooseNoLoadBalancerClass(t *testing.T) {
	forge.Init("c1", "broker", "broker", "10.0.0.1")
	services := corev1.SchemeGroupVersion.WithResource("services")
	of := func(class string) *unstructured.Unstructured {
		local := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}}}
		local.Name = "web"
		return applied(t, forge.RemoteService(local, offloaded, true, class, &forge.ForgingOpts{}))
	}
	const refused = "may have no spec.loadBalancerClass here"
	plugin, with := guard(t), guardWith(t, "loadBalancerClasses", []any{"example.org/metallb"})
	requireRefusal(t, write(t, unguarded(t, "liqo-broker-exposure"), theKubelet, services, "", nil, of("internal")), "")
	requireRefusal(t, write(t, plugin, theKubelet, services, "", nil, of("internal")), refused)
	requireRefusal(t, write(t, plugin, theKubelet, services, "", of("internal"), of("internal")), "")
	requireRefusal(t, write(t, with, theKubelet, services, "", nil, of("internal")), refused)
	requireRefusal(t, write(t, with, theKubelet, services, "", nil, of("example.org/metallb")), "")
	requireRefusal(t, write(t, plugin, liqo, services, "", nil, of("internal")), "")

	values := Values(All)
	values["broker"] = map[string]any{"extraArgs": []any{"--offer-load-balancer-class=metal;default", "--client-qps=7"}}
	objects, err := here.RenderedWith(Namespace, values)
	require.NoError(t, err)
	requireRefusal(t, write(t, guardOf(t, objects), theKubelet, services, "", nil, of("metal")), "")
	requireRefusal(t, write(t, guardOf(t, objects), theKubelet, services, "", nil, of("internal")), refused)
}

// claimOf returns a function that makes claims, in an offloaded namespace, for a volume of a class and a size.
func claimOf(class, size string) func(changes ...func(map[string]any)) *unstructured.Unstructured {
	return func(changes ...func(map[string]any)) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim",
			// The API server has added the finalizer.
			"metadata": map[string]any{"name": "data", "namespace": offloaded, "finalizers": []any{"kubernetes.io/pvc-protection"}},
			"spec": map[string]any{
				"storageClassName": class, "resources": map[string]any{"requests": map[string]any{"storage": size}},
			},
		}}
		for _, change := range changes {
			change(o.Object)
		}
		return o
	}
}

// This cluster would create a volume for a claim.
func TestConsumersHaveNoVolumesOfThisCluster(t *testing.T) {
	claims := corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	claim := claimOf("premium", "500Ti")
	chosen := claim(set("pv-of-another", "spec", "volumeName"))
	without, plugin, with := unguarded(t, "liqo-broker-exposure", "liqo-broker-shadowpods"), guard(t), guardWith(t, "volumes", true)
	for name, tc := range map[string]struct {
		who           string
		old, new      *unstructured.Unstructured
		because, with string
	}{
		"a claim": {theKubelet, nil, claim(), "may have no PersistentVolumeClaims here", ""},
		"another finalizer": {
			theKubelet, nil, claim(set([]any{"evil.example/keep"}, "metadata", "finalizers")), "", "no finalizers",
		},
		"a volume of another": {
			theKubelet, nil, chosen, "may have no PersistentVolumeClaims here", "may not choose a PersistentVolume",
		},
		"later": {
			theKubelet, claim(), chosen, "may have no PersistentVolumeClaims here", "may not choose a PersistentVolume",
		},
		"one that is there":         {theKubelet, chosen, chosen, "", ""},
		"a claim of this cluster":   {"an administrator", nil, chosen, "", ""},
		"Liqo's label for a Secret": {theKubelet, nil, claim(labelled("liqo.io/webhook", "true")), "", "the label liqo.io/webhook"},
		"the label of the virtual kubelet": {
			theKubelet, nil, claim(labelled("offloading.liqo.io/origin", "c1")), "may have no PersistentVolumeClaims here", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			requireRefusal(t, write(t, with, tc.who, claims, "", tc.old, tc.new), tc.with)
			if tc.because == "" && tc.with != "" {
				return // Two policies reject it.
			}
			requireRefusal(t, write(t, without, tc.who, claims, "", tc.old, tc.new), "")
			requireRefusal(t, write(t, plugin, tc.who, claims, "", tc.old, tc.new), tc.because)
		})
	}
	shadow := raw(t, forwarded(at()))
	volume := shadow.Object["spec"].(map[string]any)["pod"].(map[string]any)["volumes"].([]any)[0].(map[string]any)
	set("1Gi", "ephemeral", "volumeClaimTemplate", "spec", "resources", "requests", "storage")(volume)
	requireRefusal(t, write(t, without, theKubelet, shadowPods, "", nil, shadow), "")
	requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", nil, shadow), "may have no ephemeral volumes")
	requireRefusal(t, write(t, with, theKubelet, shadowPods, "", nil, shadow), "")
}

// Other programs in the cluster select Secrets, ConfigMaps and Events by their labels.
func TestConsumersWriteNothingInTheNameOfOthers(t *testing.T) {
	without, plugin := unguarded(t, "liqo-broker-exposure"), guard(t)
	of := func(kind string, changes ...func(map[string]any)) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": "x", "namespace": offloaded},
		}}
		for _, change := range changes {
			change(o.Object)
		}
		return o
	}
	events := of("Event", set("liqo-broker", "source", "component"), set("FailedAssignment", "reason"))
	later := events.DeepCopy()
	later.SetAPIVersion("events.k8s.io/v1")
	for name, tc := range map[string]struct {
		o       *unstructured.Unstructured
		because string
	}{
		"a Secret": {of("Secret", set("Opaque", "type"), labelled("app", "web")), ""},
		"with a token of this cluster": {
			of("Secret", set("kubernetes.io/service-account-token", "type")), "a token of this cluster",
		},
		"an Event of the broker": {events, "may write no Events here"},
		"of the newer API":       {later, "may write no Events here"},
		"a dashboard":            {of("ConfigMap", labelled("grafana_dashboard", "1")), "label grafana_dashboard"},
		"a data source":          {of("ConfigMap", labelled("grafana_datasource", "1")), "label grafana_datasource"},
		"a cluster of Argo CD": {
			of("Secret", labelled("argocd.argoproj.io/secret-type", "cluster")), "label argocd.argoproj.io/secret-type",
		},
		"a copy of a Secret of another": {
			of("Secret", annotated("replicator.v1.mittwald.de/replicate-from")), "annotation replicator.v1.mittwald.de/replicate-from",
		},
		"a Service for metrics of the broker": {
			of("Service", labelled("app.kubernetes.io/name", "liqo-broker-vk")), "label app.kubernetes.io/name",
		},
		"a Service of another name": {of("Service", labelled("app.kubernetes.io/name", "web")), ""},
		"a ConfigMap of a tool": {
			of("ConfigMap", annotated("meta.helm.sh/release-name"), labelled("helm.sh/chart", "web-1")), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			plural := map[string]string{
				"Secret": "secrets", "ConfigMap": "configmaps", "Event": "events", "Service": "services",
			}[tc.o.GetKind()]
			resource := tc.o.GroupVersionKind().GroupVersion().WithResource(plural)
			requireRefusal(t, write(t, without, theKubelet, resource, "", nil, tc.o), "")
			requireRefusal(t, write(t, plugin, theKubelet, resource, "", nil, tc.o), tc.because)
			requireRefusal(t, write(t, plugin, liqo, resource, "", nil, tc.o), "")
		})
	}
}

// applied returns the object after a server-side apply.
func applied(t *testing.T, configuration any, changes ...func(map[string]any)) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(configuration)
	require.NoError(t, err)
	for _, change := range changes {
		change(fields)
	}
	return &unstructured.Unstructured{Object: fields}
}

func TestConsumersStayCordoned(t *testing.T) {
	plugin := guard(t)
	const refused = "only Liqo and the administrators of this cluster may cordon or uncordon"
	for _, key := range []string{"liqo.io/cordon-tenant", "liqo.io/cordon"} {
		cordoned, open := set("true", "metadata", "annotations", key), set("false", "metadata", "annotations", key)
		for name, tc := range map[string]struct {
			who      string
			old, new *unstructured.Unstructured
			because  string
		}{
			"Liqo cordons":                    {liqo, slice(), slice(cordoned), ""},
			"and uncordons":                   {liqo, slice(cordoned), slice(), ""},
			"the replicator changes the spec": {theConsumer, slice(cordoned), slice(cordoned, set("8", "spec", "resources", "cpu")), ""},
			"the consumer uncordons itself":   {theConsumer, slice(cordoned), slice(), refused},
			"by another value":                {theConsumer, slice(cordoned), slice(open), refused},
			"who peers it does":               {thePeeringUser, slice(cordoned), slice(), refused},
			"of Liqo's own class": {
				theConsumer, slice(cordoned, set("default", "spec", "class")), slice(set("default", "spec", "class")), refused,
			},
			"it brings the annotation": {theConsumer, nil, slice(cordoned), ""},
			"it writes another annotation": {
				theConsumer, slice(cordoned), slice(cordoned, set("x", "metadata", "annotations", "x")), "",
			},
		} {
			t.Run(key+" "+name, func(t *testing.T) { requireRefusal(t, ask(t, plugin, tc.who, "", tc.old, tc.new), tc.because) })
		}
	}
	without := unguarded(t, "liqo-broker-offers")
	require.NoError(t, ask(t, without, theConsumer, "", slice(set("true", "metadata", "annotations", "liqo.io/cordon-tenant")), slice()))
}

func TestQuantitiesOfShadowPodsThatTakeForeverAreRefused(t *testing.T) {
	plugin, without := guardWith(t, "volumes", true), unguarded(t, "liqo-broker-shadowpods")
	container := func(o map[string]any) map[string]any {
		return o["spec"].(map[string]any)["pod"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	}
	volume := func(o map[string]any) map[string]any {
		return o["spec"].(map[string]any)["pod"].(map[string]any)["volumes"].([]any)[0].(map[string]any)
	}
	for where, put := range map[string]func(o map[string]any, quantity any){
		"a request": func(o map[string]any, q any) { set(q, "resources", "requests", "memory")(container(o)) },
		"a limit": func(o map[string]any, q any) {
			set("1", "resources", "requests", "memory")(container(o))
			set(q, "resources", "limits", "memory")(container(o))
		},
		"the overhead":    func(o map[string]any, q any) { set(q, "spec", "pod", "overhead", "cpu")(o) },
		"an empty volume": func(o map[string]any, q any) { set(q, "emptyDir", "sizeLimit")(volume(o)) },
		"a claim": func(o map[string]any, q any) {
			set(q, "ephemeral", "volumeClaimTemplate", "spec", "resources", "requests", "storage")(volume(o))
		},
		"the divisor of a file": func(o map[string]any, q any) {
			set([]any{map[string]any{"path": "x", "resourceFieldRef": map[string]any{"divisor": q}}}, "downwardAPI", "items")(volume(o))
		},
		"that of a projected one": func(o map[string]any, q any) {
			item := map[string]any{"path": "x", "resourceFieldRef": map[string]any{"divisor": q}}
			set([]any{map[string]any{"downwardAPI": map[string]any{"items": []any{item}}}}, "projected", "sources")(volume(o))
		},
		"that of a variable": func(o map[string]any, q any) {
			set([]any{map[string]any{"name": "X", "valueFrom": map[string]any{"resourceFieldRef": map[string]any{"divisor": q}}}},
				"env")(container(o))
		},
	} {
		for quantity, accepted := range map[any]bool{
			int64(7): true, "1500m": true, "2Ei": true, "1e3": true, "1e-2000000000": false, "1E2000000000": false,
			"-1000": false, "+1": false, int64(-7): false,
		} {
			t.Run(fmt.Sprint(where, " of ", quantity), func(t *testing.T) {
				shadow := raw(t, forwarded(at()))
				put(shadow.Object, quantity)
				requireRefusal(t, write(t, without, theKubelet, shadowPods, "", nil, shadow), "")
				because := ""
				if !accepted {
					because = "a quantity in a ShadowPod may have 30 digits"
				}
				requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", nil, shadow), because)
			})
		}
	}
}

// Providers make the volumes of the classes that the broker offers. kube-scheduler chooses the Node of a claim: a consumer
// could choose one whose disks this cluster provisions.
func TestConsumersHaveVolumesAtProviders(t *testing.T) {
	claims := corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	claim := claimOf("liqo", "1Gi")
	values := Values(All)
	values["broker"] = map[string]any{"extraArgs": []any{"--offer-storage-class=liqo;default", "--offer-storage-class=ssd"}}
	objects, err := here.RenderedWith(Namespace, values)
	require.NoError(t, err)
	offered, plugin := guardOf(t, objects), guard(t)
	scheduled := claim(set("pvc-1", "spec", "volumeName"), set(map[string]any{"volume.kubernetes.io/selected-node": "liqo-broker"},
		"metadata", "annotations"))
	for name, tc := range map[string]struct {
		old, new *unstructured.Unstructured
		because  string
	}{
		"the default class": {nil, claim(), ""},
		"another class":     {nil, claim(set("ssd", "spec", "storageClassName")), ""},
		"not offered":       {nil, claim(set("premium", "spec", "storageClassName")), "--offer-storage-class"},
		"expanded": {scheduled, func() *unstructured.Unstructured {
			larger := scheduled.DeepCopy()
			set("2Gi", "spec", "resources", "requests", "storage")(larger.Object)
			return larger
		}(), ""},
		"a chosen volume": {nil, claim(set("pv", "spec", "volumeName")), "may not choose a PersistentVolume"},
		"of a snapshot": {
			nil, claim(set(map[string]any{"kind": "VolumeSnapshot", "name": "s"}, "spec", "dataSource")), "no spec.dataSource",
		},
		"selected": {nil, claim(set(map[string]any{}, "spec", "selector")), "spec.selector"},
		"a chosen Node": {
			nil, claim(set(
				map[string]any{"volume.kubernetes.io/selected-node": "worker"}, "metadata", "annotations")),
			"may not have annotations of volume.kubernetes.io",
		},
		"a chosen Node, later": {
			claim(), claim(set(
				map[string]any{"volume.beta.kubernetes.io/storage-provisioner": "liqo.io/storage"}, "metadata", "annotations")),
			"may not have annotations of volume.kubernetes.io",
		},
	} {
		t.Run(name, func(t *testing.T) {
			requireRefusal(t, write(t, offered, theKubelet, claims, "", tc.old, tc.new), tc.because)
			requireRefusal(t, write(t, offered, liqo, claims, "", tc.old, tc.new), "")
		})
	}
	requireRefusal(t, write(t, plugin, theKubelet, claims, "", nil, claim()), "may have no PersistentVolumeClaims here")
}
