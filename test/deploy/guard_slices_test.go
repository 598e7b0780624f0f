package deploy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication/forge"
)

// created returns a slice as a consumer's replicator creates it: the slice that liqoctl creates in the consumer, with
// the labels of the replica. Liqo's controller adds the consumer's id and the request later
// (localresourceslice-controller).
func created(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	local := forge.ResourceSlice("s", tenantNamespace)
	options := &forge.ResourceSliceOptions{Class: "broker"}
	require.NoError(t, forge.MutateResourceSlice(local, liqov1beta1.ClusterID("broker"), options, true))
	replica := raw(t, local)
	set(nil, "status")(replica.Object)
	set(replicated(), "metadata", "labels")(replica.Object)
	return replica
}

// sent returns a slice that this cluster sends to a cluster. That cluster is the consumer, if it is also a provider.
func sent(to string, changes ...func(map[string]any)) *unstructured.Unstructured {
	return slice(append([]func(map[string]any){
		set(map[string]any{"liqo.io/replication": "true", "liqo.io/remote-cluster-id": to, "liqo.io/remoteID": to}, "metadata", "labels"),
		set(map[string]any{"liqo.io/create-virtual-node": "true"}, "metadata", "annotations"),
		set("broker", "spec", "consumerClusterID"), set(to, "spec", "providerClusterID"),
	}, changes...)...)
}

// renew returns a Renew as a consumer's replicator creates it (localrenewer-controller).
func renew(t *testing.T, changes ...func(map[string]any)) *unstructured.Unstructured {
	t.Helper()
	local := &authv1beta1.Renew{Spec: authv1beta1.RenewSpec{
		ConsumerClusterID: "c1", IdentityType: authv1beta1.ControlPlaneIdentityType, PublicKey: []byte("x"),
	}}
	local.Name, local.Namespace = "controlplane-broker", tenantNamespace
	replica := raw(t, local)
	replica.SetGroupVersionKind(authv1beta1.GroupVersion.WithKind(authv1beta1.RenewKind))
	set(nil, "status")(replica.Object)
	first := []func(map[string]any){set(replicated(), "metadata", "labels"), set(honest(), "spec", "csr")}
	for _, change := range append(first, changes...) {
		change(replica.Object)
	}
	return replica
}

func TestConsumersWriteReplicasOnly(t *testing.T) {
	const (
		theLabels = "a consumer may write only the ResourceSlices and Renews that Liqo replicates from its cluster"
		status    = "only the cluster that gets a ResourceSlice or a Renew may write its status"
		another   = "a consumer may write only its own id to spec.consumerClusterID"
	)
	signed := set("eA==", "status", "authParams", "signedCRT")
	// The grant is checked by the policy liqo-broker-offers, which has a different message.
	accepted := conditions(condition("Authentication", "Accepted"), condition("Resources", "Accepted"))
	moved := labelled("liqo.io/remoteID", "p2")
	inNamespace := set(elsewhere, "metadata", "namespace")
	plugin, without := guard(t), unguarded(t, "liqo-broker-slices")
	for name, tc := range map[string]struct {
		who, subresource string
		old, new         *unstructured.Unstructured
		because          string
	}{
		"what its replicator creates":        {theConsumer, "", nil, created(t), ""},
		"with its id and the request, later": {theConsumer, "", created(t), slice(), ""},
		"what it asks for": {
			theConsumer, "", slice(granting("4")), slice(granting("4"), set("8", "spec", "resources", "cpu")), "",
		},
		"the renewal of its certificate": {theConsumer, "", nil, renew(t), ""},
		"with another key": {
			theConsumer, "", renew(t, signed), renew(t, signed, set("eQ==", "spec", "publicKey")), "",
		},
		"Liqo signs it":           {liqo, "status", renew(t), renew(t, signed), ""},
		"and accepts the slice":   {liqo, "status", slice(), slice(accepted), ""},
		"what this cluster sends": {liqo, "", nil, sent("c1"), ""},
		"with the finalizer of the replicator": {
			theReplicator, "", sent("c1"), sent("c1", set([]any{"crdreplicator.liqo.io/resource"}, "metadata", "finalizers")), "",
		},
		"and what comes back":                   {theReplicator, "status", sent("c1"), sent("c1", accepted, signed), ""},
		"by a tenant of this cluster":           {"an administrator", "", nil, sent("p1"), ""},
		"as if this cluster sent it to another": {theConsumer, "", nil, sent("p1", set("p1", "spec", "consumerClusterID")), theLabels},
		"to itself":                             {theConsumer, "", nil, sent("c1"), theLabels},
		"by who peers it":                       {thePeeringUser, "", nil, sent("p1"), theLabels},
		"with a virtual node to be made of it":  {theConsumer, "status", sent("p1"), sent("p1", accepted, signed), theLabels},
		"replicated, and to be replicated":      {theConsumer, "", nil, slice(labelled("liqo.io/replication", "true")), theLabels},
		"not replicated":                        {theConsumer, "", nil, slice(labelled("liqo.io/replicated", nil)), theLabels},
		"without labels":                        {theConsumer, "", nil, slice(set(nil, "metadata", "labels")), theLabels},
		"of another origin":                     {theConsumer, "", nil, slice(labelled("liqo.io/originID", "c2")), theLabels},
		"of another cluster":                    {theConsumer, "", nil, slice(labelled("liqo.io/remote-cluster-id", "p1")), theLabels},
		"for itself":                            {theConsumer, "", nil, slice(labelled("liqo.io/remoteID", "c1")), theLabels},
		"in a namespace of no consumer":         {theConsumer, "", nil, slice(inNamespace), theLabels},
		"what this cluster sends to it":         {theConsumer, "", sent("c1"), sent("c1", set("8", "spec", "resources", "cpu")), theLabels},
		"or its status":                         {theConsumer, "status", sent("c1"), sent("c1", granting("9")), theLabels},
		"as if it were its own":                 {theConsumer, "", sent("c1"), slice(), theLabels},
		"its own, as if this cluster sent it":   {theConsumer, "", slice(), sent("c1"), theLabels},
		"the renewal of this cluster":           {theConsumer, "", renew(t, set(nil, "metadata", "labels")), renew(t), theLabels},
		"a renewal of another":                  {theConsumer, "", nil, renew(t, labelled("liqo.io/originID", "c2")), theLabels},
		"for a cluster that Liqo does not know": {theConsumer, "", nil, slice(moved), ""},
		"the status": {
			theConsumer, "status", slice(), slice(conditions(condition("Authentication", "Accepted"))), status,
		},
		"the certificate in the status":   {theConsumer, "status", slice(), slice(signed), status},
		"that of the renewal":             {theConsumer, "status", renew(t), renew(t, signed), status},
		"when it creates it":              {theConsumer, "", nil, renew(t, signed), status},
		"of another consumer":             {theConsumer, "", nil, slice(set("c2", "spec", "consumerClusterID")), another},
		"later":                           {theConsumer, "", slice(), slice(set("c2", "spec", "consumerClusterID")), another},
		"the renewal of another consumer": {theConsumer, "", nil, renew(t, set("c2", "spec", "consumerClusterID")), another},
	} {
		t.Run(name, func(t *testing.T) {
			resource := sliceVersion.WithResource(requests[tc.new.GetKind()])
			requireRefusal(t, write(t, without, tc.who, resource, tc.subresource, tc.old, tc.new), "")
			requireRefusal(t, write(t, plugin, tc.who, resource, tc.subresource, tc.old, tc.new), tc.because)
		})
	}
}
