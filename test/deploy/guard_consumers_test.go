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

// namespaceMap is one as the replicator of a consumer writes it in the broker's cluster (mutateLabelsForRemote).
func namespaceMap(changes ...func(map[string]any)) *unstructured.Unstructured {
	o := map[string]any{
		"apiVersion": offloadingv1beta1.SchemeGroupVersion.String(), "kind": "NamespaceMap",
		"metadata": map[string]any{"name": "broker", "namespace": tenantNamespace, "labels": map[string]any{
			"liqo.io/replication": "false", "liqo.io/replicated": "true", "liqo.io/originID": "c1",
			"liqo.io/remote-cluster-id": "c1", "liqo.io/remoteID": "broker",
		}},
		"spec": map[string]any{"desiredMapping": map[string]any{"shop": "shop-c1", "liqo-demo": "liqo-demo-c1"}},
	}
	for _, change := range changes {
		change(o)
	}
	return &unstructured.Unstructured{Object: o}
}

// mapped is a further namespace; current one of the status.
func mapped(name string) func(map[string]any) { return set(name, "spec", "desiredMapping", "x") }

func current(name string) func(map[string]any) {
	return set(map[string]any{"remoteNamespace": name, "phase": "Accepted"}, "status", "currentMapping", "x")
}

func labelled(key string, value any) func(map[string]any) {
	return set(value, "metadata", "labels", key)
}

func TestConsumersMapTheirOwnNamespacesOnly(t *testing.T) {
	const (
		name, theLabels = "a consumer may have no namespace ", "a consumer may write only the NamespaceMaps that Liqo replicates"
		status          = "only Liqo may write the status of a NamespaceMap"
	)
	// What the broker's cluster maps to a provider that is a consumer as well.
	ours := func(changes ...func(map[string]any)) *unstructured.Unstructured {
		return namespaceMap(append([]func(map[string]any){
			set(map[string]any{"liqo.io/replication": "true", "liqo.io/remote-cluster-id": "c1", "liqo.io/remoteID": "c1"}, "metadata", "labels"),
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
		"what its replicator creates":          {who: theConsumer, new: namespaceMap()},
		"without a namespace":                  {who: theConsumer, new: namespaceMap(set(nil, "spec", "desiredMapping"))},
		"one more":                             {who: theConsumer, old: namespaceMap(), new: namespaceMap(mapped("more-c1"))},
		"one that it selected":                 {who: theConsumer, old: namespaceMap(), new: namespaceMap(mapped("other-name-c1"))},
		"Liqo's finalizer":                     {who: liqo, old: namespaceMap(), new: namespaceMap(set([]any{"x"}, "metadata", "finalizers"))},
		"Liqo's status":                        {who: liqo, subresource: "status", old: namespaceMap(), new: namespaceMap(current("shop-c1"))},
		"ours":                                 {who: liqo, new: ours()},
		"our status, as a provider reports it": {who: theReplicator, subresource: "status", old: ours(), new: ours(current("future-c2-broker"))},
		"that of another consumer":             {theConsumer, "", namespaceMap(), namespaceMap(mapped("future-c2")), name + "future-c2", true},
		"when it creates the map":              {theConsumer, "", nil, namespaceMap(mapped("future-c2")), name + "future-c2", true},
		"without a dash":                       {theConsumer, "", nil, namespaceMap(mapped("futurec1")), name + "futurec1", true},
		"the same name":                        {theConsumer, "", nil, namespaceMap(mapped("x")), name + "x", true},
		"one of the system":                    {theConsumer, "", nil, namespaceMap(mapped("kube-anything-c1")), name + "kube-anything-c1", false},
		"a tenant namespace":                   {theConsumer, "", nil, namespaceMap(mapped("liqo-tenant-c9-c1")), name + "liqo-tenant-c9-c1", false},
		"Liqo's":                               {theConsumer, "", nil, namespaceMap(mapped("liqo")), name + "liqo", false},
		"the broker's":                         {theConsumer, "", nil, namespaceMap(mapped("liqo-broker")), name + "liqo-broker", false},
		"whoever writes it":                    {theReplicator, "", nil, namespaceMap(mapped("future-c2")), name + "future-c2", true},
		"what is there may be taken away":      {who: theConsumer, old: namespaceMap(mapped("kube-x")), new: namespaceMap()},
		"or stay":                              {who: theConsumer, old: namespaceMap(mapped("kube-x")), new: namespaceMap(mapped("kube-x"), set("a-c1", "spec", "desiredMapping", "a"))},
		"the status":                           {theConsumer, "status", namespaceMap(), namespaceMap(current("kube-system")), status, false},
		"the status, by who peers":             {thePeeringUser, "status", namespaceMap(), namespaceMap(current("kube-system")), status, false},
		"a map that is not replicated":         {theConsumer, "", nil, namespaceMap(labelled("liqo.io/replicated", nil)), theLabels, false},
		"that asks to be replicated":           {theConsumer, "", nil, namespaceMap(labelled("liqo.io/replication", "true")), theLabels, false},
		"of another origin":                    {theConsumer, "", nil, namespaceMap(labelled("liqo.io/originID", "c2")), theLabels, false},
		"of another cluster":                   {theConsumer, "", nil, namespaceMap(labelled("liqo.io/remote-cluster-id", "p1")), theLabels, false},
		"for itself":                           {theConsumer, "", nil, namespaceMap(labelled("liqo.io/remoteID", "c1")), theLabels, false},
		"ours, by the peer":                    {theConsumer, "", ours(), ours(set("liqo", "spec", "desiredMapping", "liqo")), theLabels, false},
		"ours, as if it were its own":          {theConsumer, "", ours(), namespaceMap(), theLabels, false},
		"the status of ours":                   {theConsumer, "status", ours(), ours(current("stolen")), theLabels, false},
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
	requireRefusal(t, write(t, plugin, theConsumer, namespaceMaps, "", nil, namespaceMap(set(all, "spec", "desiredMapping"))), "may map 2000 namespaces")
	require.Less(t, time.Since(began), 5*time.Second)
}

func TestConsumersOpenNothingToTheOutside(t *testing.T) {
	forge.Init("c1", "broker", "broker", "10.0.0.1")
	service := func(kind corev1.ServiceType, changes ...func(map[string]any)) *unstructured.Unstructured {
		local := &corev1.Service{Spec: corev1.ServiceSpec{
			Type: kind, ExternalIPs: []string{"192.0.2.1"}, LoadBalancerIP: "192.0.2.1", Ports: []corev1.ServicePort{{Port: 80}},
		}}
		local.Name = "web"
		return applied(t, forge.RemoteService(local, offloaded, true, "metallb", &forge.ForgingOpts{}), changes...)
	}
	ingress := func(changes ...func(map[string]any)) *unstructured.Unstructured {
		local := &netv1.Ingress{Spec: netv1.IngressSpec{Rules: []netv1.IngressRule{{Host: "bank.example.com"}}}}
		local.Name = "site"
		return applied(t, forge.RemoteIngress(local, offloaded, true, "nginx", &forge.ForgingOpts{}), changes...)
	}
	in := func(namespace string) func(map[string]any) { return set(namespace, "metadata", "namespace") }
	external, balanced := set([]any{"10.0.0.1"}, "spec", "externalIPs"), set("10.0.0.1", "spec", "loadBalancerIP")
	const addresses, none = "a consumer may not choose addresses of its Services here", "a consumer may have no Ingresses here"
	plugin, without, open := guard(t), unguarded(t, "liqo-broker-exposure"), guardWith(t, "ingresses", true)
	for name, tc := range map[string]struct {
		who      string
		old, new *unstructured.Unstructured
		because  string
		open     bool
	}{
		"a Service as Liqo reflects it":       {who: theKubelet, new: service(corev1.ServiceTypeClusterIP)},
		"at the ports of nodes":               {who: theKubelet, new: service(corev1.ServiceTypeNodePort)},
		"at a load balancer":                  {who: theKubelet, new: service(corev1.ServiceTypeLoadBalancer)},
		"at addresses of its choice":          {theKubelet, nil, service(corev1.ServiceTypeClusterIP, external), addresses, false},
		"later":                               {theKubelet, service(corev1.ServiceTypeClusterIP), service(corev1.ServiceTypeClusterIP, external), addresses, false},
		"at an address of the load balancer":  {theKubelet, nil, service(corev1.ServiceTypeLoadBalancer, balanced), addresses, false},
		"which are there":                     {who: theKubelet, old: service(corev1.ServiceTypeClusterIP, external), new: service(corev1.ServiceTypeClusterIP, external, labelled("a", "b"))},
		"which are taken away":                {who: theKubelet, old: service(corev1.ServiceTypeClusterIP, external), new: service(corev1.ServiceTypeClusterIP)},
		"in a namespace that just arrived":    {theKubelet, nil, service(corev1.ServiceTypeClusterIP, in(arrived), external), addresses, false},
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

// applied is what is there after a server-side apply.
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
			"of Liqo's own class":             {theConsumer, slice(cordoned, set("default", "spec", "class")), slice(set("default", "spec", "class")), refused},
			"it brings the annotation":        {theConsumer, nil, slice(cordoned), ""},
			"it writes another annotation":    {theConsumer, slice(cordoned), slice(cordoned, set("x", "metadata", "annotations", "x")), ""},
		} {
			t.Run(key+" "+name, func(t *testing.T) { requireRefusal(t, ask(t, plugin, tc.who, "", tc.old, tc.new), tc.because) })
		}
	}
	without := unguarded(t, "liqo-broker-offers")
	require.NoError(t, ask(t, without, theConsumer, "", slice(set("true", "metadata", "annotations", "liqo.io/cordon-tenant")), slice()))
}

func TestQuantitiesOfShadowPodsThatTakeForeverAreRefused(t *testing.T) {
	plugin, without := guard(t), unguarded(t, "liqo-broker-shadowpods")
	container := func(o map[string]any) map[string]any {
		return o["spec"].(map[string]any)["pod"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	}
	volume := func(o map[string]any) map[string]any {
		return o["spec"].(map[string]any)["pod"].(map[string]any)["volumes"].([]any)[0].(map[string]any)
	}
	for where, put := range map[string]func(o map[string]any, quantity any){
		"a request":       func(o map[string]any, q any) { set(q, "resources", "requests", "memory")(container(o)) },
		"a limit":         func(o map[string]any, q any) { set(q, "resources", "limits", "memory")(container(o)) },
		"the pod's":       func(o map[string]any, q any) { set(q, "spec", "pod", "resources", "limits", "cpu")(o) },
		"the overhead":    func(o map[string]any, q any) { set(q, "spec", "pod", "overhead", "cpu")(o) },
		"an empty volume": func(o map[string]any, q any) { set(q, "emptyDir", "sizeLimit")(volume(o)) },
		"a claim": func(o map[string]any, q any) {
			set(q, "ephemeral", "volumeClaimTemplate", "spec", "resources", "requests", "storage")(volume(o))
		},
	} {
		for quantity, accepted := range map[any]bool{
			int64(7): true, "1500m": true, "2Ei": true, "1e3": true, "1e-2000000000": false, "1E2000000000": false,
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
