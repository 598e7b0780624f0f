package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/deploy"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// roles asks the API server which rights the broker's ServiceAccount has.
func (g *guarded) roles(t *testing.T) {
	const tenant, own = "liqo-tenant-provider1", sandbox.BrokerComponent
	for what, c := range map[string]struct {
		authorizationv1.ResourceAttributes
		want bool
	}{
		"assign": {
			authorizationv1.ResourceAttributes{Verb: "assign", Group: "brokering.liqo.io", Resource: "assignments"}, true,
		},
		"grant": {
			authorizationv1.ResourceAttributes{Verb: "grant", Group: "brokering.liqo.io", Resource: "resourceslices"}, true,
		},
		"patch pods":  {authorizationv1.ResourceAttributes{Verb: "patch", Resource: "pods", Namespace: "any"}, true},
		"delete pods": {authorizationv1.ResourceAttributes{Verb: "delete", Resource: "pods", Namespace: "any"}, true},
		"patch pods/status": {
			authorizationv1.ResourceAttributes{Verb: "patch", Resource: "pods", Subresource: "status", Namespace: "any"}, true,
		},
		"create pods": {authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Namespace: "any"}, false},
		"exec into pods": {
			authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: "any"}, false,
		},
		"record events":     {authorizationv1.ResourceAttributes{Verb: "create", Resource: "events", Namespace: "any"}, true},
		"create its node":   {authorizationv1.ResourceAttributes{Verb: "create", Resource: "nodes"}, true},
		"change its node":   {authorizationv1.ResourceAttributes{Verb: "update", Resource: "nodes", Name: own}, true},
		"delete its node":   {authorizationv1.ResourceAttributes{Verb: "delete", Resource: "nodes", Name: own}, true},
		"watch its node":    {authorizationv1.ResourceAttributes{Verb: "watch", Resource: "nodes", Name: own}, true},
		"watch other nodes": {authorizationv1.ResourceAttributes{Verb: "watch", Resource: "nodes"}, false},
		"remember its node": {
			authorizationv1.ResourceAttributes{Verb: "update", Resource: "configmaps", Namespace: own, Name: "liqo-broker-node"}, true,
		},
		"delete another node": {authorizationv1.ResourceAttributes{Verb: "delete", Resource: "nodes", Name: "provider1"}, false},
		"report its node": {
			authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes", Subresource: "status", Name: own}, true,
		},
		"change another node": {authorizationv1.ResourceAttributes{Verb: "update", Resource: "nodes", Name: "provider1"}, false},
		"renew its node's lease": {authorizationv1.ResourceAttributes{
			Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease", Name: own,
		}, true},
		"renew another's lease": {authorizationv1.ResourceAttributes{
			Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease", Name: "provider1",
		}, false},
		"renew its election": {authorizationv1.ResourceAttributes{
			Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: own, Name: "any",
		}, true},
		"read leases of tenants": {
			authorizationv1.ResourceAttributes{Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Namespace: tenant}, true,
		},
		"take leases of tenants": {authorizationv1.ResourceAttributes{
			Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: tenant, Name: "provider1",
		}, false},
		"read a kubeconfig": {authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: tenant}, true},
		"list secrets":      {authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets", Namespace: tenant}, false},
		"watch VirtualNodes": {
			authorizationv1.ResourceAttributes{Verb: "watch", Group: "offloading.liqo.io", Resource: "virtualnodes"}, true,
		},
		"change VirtualNodes": {
			authorizationv1.ResourceAttributes{Verb: "update", Group: "offloading.liqo.io", Resource: "virtualnodes", Namespace: tenant},
			false,
		},
		"watch ForeignClusters": {
			authorizationv1.ResourceAttributes{Verb: "watch", Group: "core.liqo.io", Resource: "foreignclusters"}, true,
		},
		"watch ResourceSlices": {
			authorizationv1.ResourceAttributes{Verb: "watch", Group: "authentication.liqo.io", Resource: "resourceslices"}, true,
		},
		"watch Configurations": {
			authorizationv1.ResourceAttributes{Verb: "watch", Group: "networking.liqo.io", Resource: "configurations"}, true,
		},
		"watch NamespaceMaps": {
			authorizationv1.ResourceAttributes{Verb: "watch", Group: "offloading.liqo.io", Resource: "namespacemaps"}, true,
		},
		"delete stale IPs": {
			authorizationv1.ResourceAttributes{Verb: "delete", Group: "ipam.liqo.io", Resource: "ips", Namespace: "any"}, true,
		},
		"create ProviderClusters": {
			authorizationv1.ResourceAttributes{Verb: "create", Group: "brokering.liqo.io", Resource: "providerclusters"}, true,
		},
		"change ProviderClusters": {
			authorizationv1.ResourceAttributes{Verb: "patch", Group: "brokering.liqo.io", Resource: "providerclusters", Name: "any"},
			false,
		},
		"change PlacementPolicies": {
			authorizationv1.ResourceAttributes{Verb: "update", Group: "brokering.liqo.io", Resource: "placementpolicies", Name: "any"},
			false,
		},
		"report PlacementPolicies": {authorizationv1.ResourceAttributes{
			Verb: "patch", Group: "brokering.liqo.io", Resource: "placementpolicies", Subresource: "status",
		}, true},
		"review tokens": {
			authorizationv1.ResourceAttributes{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"}, true,
		},
		"review access": {
			authorizationv1.ResourceAttributes{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}, true,
		},
		"read the client CA": {authorizationv1.ResourceAttributes{
			Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: "extension-apiserver-authentication",
		}, true},
		"read other ConfigMaps": {
			authorizationv1.ResourceAttributes{Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: "other"}, false,
		},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + own + ":" + own, ResourceAttributes: &c.ResourceAttributes,
		}}
		answer, err := g.broker.Kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		require.NoError(t, err)
		assert.Equal(t, c.want, answer.Status.Allowed, what)
	}
}

// dryRun checks that an API server accepts all objects of the chart and of the kustomize overlays, for each service,
// with the requests of `kubectl apply --server-side --dry-run=server`.
func (g *guarded) dryRun(t *testing.T) {
	manifests := deploy.Directory("../../deploy")
	for _, service := range deploy.Services() {
		fromChart, err := manifests.Rendered(service)
		require.NoError(t, err)
		fromOverlay, err := manifests.Kustomized("kustomize/" + service)
		require.NoError(t, err)
		for _, o := range slices.Concat(fromChart, fromOverlay) {
			err := g.broker.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o),
				client.FieldOwner("dry-run"), client.ForceOwnership, client.DryRunAll)
			assert.NoError(t, err, "%s: %s %s", service, o.GetKind(), o.GetName())
		}
	}
}

// certificates checks that only the broker approves the serving certificate of its node, and that it can approve no
// others.
func (g *guarded) certificates(t *testing.T) {
	ctx := t.Context()
	broker := g.as(t, sandbox.BrokerComponent, sandbox.BrokerComponent)
	other := g.as(t, "liqo-tenant-"+sandbox.Provider(1), sandbox.Provider(1))
	request := servingRequest(t, sandbox.BrokerComponent)

	own, err := broker.CertificatesV1().CertificateSigningRequests().Create(ctx, request, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, approve(ctx, broker, own))
	eventually(t, 10*time.Second, func(ctx context.Context) error {
		signed, err := g.broker.Kube.CertificatesV1().CertificateSigningRequests().Get(ctx, own.Name, metav1.GetOptions{})
		if err == nil && len(signed.Status.Certificate) == 0 {
			err = fmt.Errorf("not signed: %v", signed.Status.Conditions)
		}
		return err
	})

	foreign, err := g.broker.Kube.CertificatesV1().CertificateSigningRequests().Create(ctx, request, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.ErrorContains(t, approve(ctx, broker, foreign), "the broker may approve only certificates that it requested itself")
	assert.Error(t, approve(ctx, other, foreign), "nor may virtual kubelets")
	assert.NoError(t, approve(ctx, g.broker.Kube, foreign), "others are not concerned")
}

func servingRequest(t *testing.T, node string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, key)
	require.NoError(t, err)
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "guard-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeletServingSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
}

func approve(ctx context.Context, as kubernetes.Interface, csr *certificatesv1.CertificateSigningRequest) error {
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	})
	_, err := as.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
	return err
}

// api checks that the CRDs set defaults and reject invalid objects.
func (g *guarded) api(t *testing.T) {
	// Objects are deleted after their creation: they would affect the scenarios that follow.
	create := func(o client.Object) error {
		err := g.broker.Client.Create(t.Context(), o)
		if err == nil {
			t.Cleanup(func() { require.NoError(t, g.broker.Client.Delete(context.Background(), o)) })
		}
		return err
	}
	meta := metav1.ObjectMeta{GenerateName: "guard-"}
	provider := &brokeringv1alpha1.ProviderCluster{ObjectMeta: meta}
	require.NoError(t, create(provider))
	require.NotNil(t, provider.Spec.Enabled)
	assert.True(t, *provider.Spec.Enabled)
	policy := &brokeringv1alpha1.PlacementPolicy{ObjectMeta: meta}
	require.NoError(t, create(policy))
	assert.Equal(t, brokeringv1alpha1.FailoverMove, policy.Spec.Failover.Mode)

	for price, good := range map[string]bool{"0.042": true, "7": true, "": false, "-1": false, "cheap": false, "1e3": false} {
		err := create(&brokeringv1alpha1.ProviderCluster{
			ObjectMeta: meta, Spec: brokeringv1alpha1.ProviderClusterSpec{Attributes: map[string]string{"price": price}},
		})
		if good {
			assert.NoError(t, err, price)
		} else {
			assert.ErrorContains(t, err, "attributes.price must be a decimal number", price)
		}
	}
	type perHour = map[corev1.ResourceName]brokeringv1alpha1.Decimal
	for want, prices := range map[string]brokeringv1alpha1.PriceList{
		"spec.prices[0].currency": {Currency: "euro", PerHour: perHour{"cpu": "1"}},
		"spec.prices[0].perHour":  {Currency: "EUR", PerHour: perHour{"cpu": "-1"}},
		"perHour has names":       {Currency: "EUR", PerHour: perHour{"CPU": "1"}},
		"should have at least 1":  {Currency: "EUR", PerHour: perHour{}},
		"":                        {Currency: "EUR", PerHour: perHour{"nvidia.com/gpu": "1.999999999"}},
	} {
		err := create(&brokeringv1alpha1.ProviderCluster{
			ObjectMeta: meta, Spec: brokeringv1alpha1.ProviderClusterSpec{Prices: []brokeringv1alpha1.PriceList{prices}},
		})
		if want == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, want)
		}
	}
	minute, second := metav1.Duration{Duration: time.Minute}, metav1.Duration{Duration: time.Second}
	negative := metav1.Duration{Duration: -time.Second}
	none, half := intstr.FromInt32(0), intstr.FromString("50%")
	for want, spec := range map[string]brokeringv1alpha1.PlacementPolicySpec{
		"failover.after must be at least 5s": {Failover: brokeringv1alpha1.Failover{After: &second}},
		"after has no meaning with mode Never": {
			Failover: brokeringv1alpha1.Failover{Mode: brokeringv1alpha1.FailoverNever, After: &minute},
		},
		"pendingTimeout must not be negative":  {PendingTimeout: &negative},
		"maxUnavailable must be a number from": {MaxUnavailable: &none},
		"Unsupported value: \"beauty\"":        {Weights: []brokeringv1alpha1.Weight{{Name: "beauty"}}},
		"Duplicate value: {\"name\":\"free\"}": {Weights: []brokeringv1alpha1.Weight{{Name: "free"}, {Name: "free"}}},
		"should be less than or equal to 1000": {Weights: []brokeringv1alpha1.Weight{{Name: "free", Weight: 1001}}},
		"a selection needs consumers":          {Selection: &brokeringv1alpha1.Selection{}},
		"a selection stands alone": {
			Selection: &brokeringv1alpha1.Selection{}, Consumers: []string{"c1"}, Filter: "true",
		},
		"put failover into another policy": {
			Selection: &brokeringv1alpha1.Selection{}, Consumers: []string{"c1"},
			Failover: brokeringv1alpha1.Failover{Mode: brokeringv1alpha1.FailoverNever},
		},
		"spec.maxHourlyCost.amount":              {MaxHourlyCost: &brokeringv1alpha1.Money{Amount: "1e3"}},
		"spec.spread.topologyKey: Invalid value": {Spread: &brokeringv1alpha1.Spread{}},
	} {
		assert.ErrorContains(t, create(&brokeringv1alpha1.PlacementPolicy{ObjectMeta: meta, Spec: spec}), want)
	}
	good := brokeringv1alpha1.PlacementPolicySpec{
		Failover: brokeringv1alpha1.Failover{After: &minute}, PendingTimeout: &metav1.Duration{}, MaxUnavailable: &half,
		Weights: []brokeringv1alpha1.Weight{{Name: "free", Weight: 1}, {Name: "price", Weight: 0}},
	}
	assert.NoError(t, create(&brokeringv1alpha1.PlacementPolicy{ObjectMeta: meta, Spec: good}))
	selection := &brokeringv1alpha1.PlacementPolicy{ObjectMeta: meta, Spec: brokeringv1alpha1.PlacementPolicySpec{
		Consumers: []string{"c1"}, Selection: &brokeringv1alpha1.Selection{Providers: []string{"p1"}},
	}}
	require.NoError(t, create(selection))
	assert.Equal(t, brokeringv1alpha1.SelectAllBut, selection.Spec.Selection.Mode)
}
