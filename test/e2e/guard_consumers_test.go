package e2e

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication"
)

// early checks that a consumer's pod gets no node in the broker's cluster while its namespace is not offloaded there.
// No broker runs, so the test offloads the namespace.
func (g *guarded) early(t *testing.T) {
	ctx := t.Context()
	require.NoError(t, g.consumer.Offload(ctx, guardEarly))
	pod := newPod(guardEarly, "early")
	require.NoError(t, g.consumer.Client.Create(ctx, pod))
	atBroker := client.ObjectKey{Namespace: g.consumer.RemoteNamespace(guardEarly), Name: pod.Name}
	eventually(t, 30*time.Second, func(ctx context.Context) error { return refusedToCreate(ctx, g.broker, atBroker, notOffloaded) })
	err := g.broker.Client.Get(ctx, atBroker, &corev1.Pod{})
	require.True(t, kerrors.IsNotFound(err), "the pod is there: %v", err)
	require.NoError(t, g.broker.Offload(ctx, atBroker.Namespace))
	eventually(t, time.Minute, func(ctx context.Context) error { return g.broker.Client.Get(ctx, atBroker, &corev1.Pod{}) })
}

// consumerWrites makes the identities of a consumer send writes that Liqo never would. The guard rejects all of them.
// Dry runs, so that Liqo does not act on them.
func (g *guarded) consumerWrites(t *testing.T) {
	ctx := t.Context()
	kubelet, controlPlane := g.consumerAtBroker(t), g.controlPlaneAtBroker(t)
	namespace := g.consumer.RemoteNamespace(guardEarly)
	meta := func() metav1.ObjectMeta { return metav1.ObjectMeta{Name: "attack", Namespace: namespace} }

	var theirs offloadingv1beta1.ShadowPod
	require.NoError(t, g.broker.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "early"}, &theirs))
	for because, change := range map[string]func(*corev1.PodSpec){
		"a ShadowPod may not have nodeName": func(s *corev1.PodSpec) { s.NodeName = g.broker.HostNode() },
		"pods of consumers may not have privileged": func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		},
		"a ShadowPod may not have priorityClassName": func(s *corev1.PodSpec) { s.PriorityClassName = "system-node-critical" },
	} {
		shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: meta(), Spec: *theirs.Spec.DeepCopy()}
		shadow.Labels = theirs.Labels
		change(&shadow.Spec.Pod)
		refusedFor(t, kubelet.Create(ctx, shadow, client.DryRunAll), because)
	}

	service := &corev1.Service{ObjectMeta: meta(), Spec: corev1.ServiceSpec{
		ExternalIPs: []string{"192.0.2.1"}, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	refusedFor(t, kubelet.Create(ctx, service, client.DryRunAll), "a consumer may not choose addresses of its Services here")
	service.Spec.ExternalIPs = nil
	require.NoError(t, kubelet.Create(ctx, service, client.DryRunAll))
	site := &networkingv1.Ingress{ObjectMeta: meta(), Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
		Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}},
	}}}
	refusedFor(t, kubelet.Create(ctx, site, client.DryRunAll), "a consumer may have no Ingresses here")

	var maps offloadingv1beta1.NamespaceMapList
	require.NoError(t, controlPlane.List(ctx, &maps, client.InNamespace("liqo-tenant-"+g.consumer.Name),
		client.MatchingLabels{consts.ReplicationStatusLabel: "true"}))
	require.Len(t, maps.Items, 1)
	named := maps.Items[0].DeepCopy()
	named.Spec.DesiredMapping["x"] = "future-consumer2"
	refusedFor(t, controlPlane.Update(ctx, named, client.DryRunAll), "a consumer may have no namespace future-consumer2")
	claimed := maps.Items[0].DeepCopy()
	claimed.Status.CurrentMapping["kube-system"] = offloadingv1beta1.RemoteNamespaceStatus{
		RemoteNamespace: "x", Phase: offloadingv1beta1.MappingAccepted,
	}
	refusedFor(t, controlPlane.Status().Update(ctx, claimed, client.DryRunAll), "only Liqo may write the status of a NamespaceMap")
	other := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Name: "attack", Namespace: named.Namespace, Labels: map[string]string{consts.RemoteClusterID: g.consumer.Name},
	}}
	refusedFor(t, controlPlane.Create(ctx, other, client.DryRunAll), "a consumer may write only the NamespaceMaps that Liqo replicates")

	slice := g.replica("guard-cordoned", "default")
	slice.SetAnnotations(map[string]string{consts.CordonTenantAnnotation: "true"})
	require.NoError(t, g.broker.Client.Create(ctx, slice))
	uncordoned := slice.DeepCopy()
	uncordoned.SetAnnotations(nil)
	like := g.likeControlPlane(t, "guard-cordoned")
	refusedFor(t, like.Update(ctx, uncordoned, client.DryRunAll), "may cordon or uncordon a ResourceSlice")
	require.NoError(t, like.Delete(ctx, slice))
}

// inLiqosPlace makes the identities of a consumer write objects that Liqo would take for its own, or read from a
// provider and write to a map of this cluster. Dry runs, too.
func (g *guarded) inLiqosPlace(t *testing.T) {
	ctx := t.Context()
	kubelet, controlPlane := g.consumerAtBroker(t), g.controlPlaneAtBroker(t)
	const replicasOnly = "a consumer may write only the ResourceSlices and Renews that Liqo replicates"
	sent := g.replica("attack", "default")
	sent.SetLabels(map[string]string{
		consts.ReplicationRequestedLabel: "true", consts.ReplicationDestinationLabel: "provider1", consts.RemoteClusterID: "provider1",
	})
	refusedFor(t, controlPlane.Create(ctx, sent, client.DryRunAll), replicasOnly)
	refusedFor(t, controlPlane.Create(ctx, g.replica("attack", "default"), client.DryRunAll), replicasOnly)
	var slices authv1beta1.ResourceSliceList
	require.NoError(t, controlPlane.List(ctx, &slices, client.InNamespace(sent.GetNamespace()),
		client.MatchingLabels{consts.ReplicationOriginLabel: g.consumer.Name}))
	require.NotEmpty(t, slices.Items)
	theirs := &slices.Items[0]
	require.NoError(t, controlPlane.Update(ctx, theirs.DeepCopy(), client.DryRunAll))
	theirs.Status.NodeSelector = map[string]string{"mine": "yes"}
	refusedFor(t, controlPlane.Status().Update(ctx, theirs, client.DryRunAll),
		"only the cluster that gets a ResourceSlice or a Renew may write its status")

	secret := func(labels map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name: "attack", Namespace: g.consumer.RemoteNamespace(guardEarly), Labels: labels,
		}}
	}
	require.NoError(t, kubelet.Create(ctx, secret(map[string]string{"app": "web"}), client.DryRunAll))
	refusedFor(t, kubelet.Create(ctx, secret(map[string]string{consts.WebhookResourceLabelKey: "true"}), client.DryRunAll),
		"an object of a consumer may not have the label liqo.io/webhook")

	var maps offloadingv1beta1.NamespaceMapList
	require.NoError(t, g.broker.Client.List(ctx, &maps, client.MatchingLabels{consts.ReplicationRequestedLabel: "true"}))
	require.NotEmpty(t, maps.Items)
	ours := &maps.Items[0]
	if ours.Status.CurrentMapping == nil {
		ours.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{}
	}
	require.NoError(t, g.broker.Client.Status().Update(ctx, ours.DeepCopy(), client.DryRunAll))
	ours.Status.CurrentMapping["kube-system"] = offloadingv1beta1.RemoteNamespaceStatus{
		RemoteNamespace: "x", Phase: offloadingv1beta1.MappingAccepted,
	}
	refusedFor(t, g.broker.Client.Status().Update(ctx, ours, client.DryRunAll), "may not accept the namespace kube-system")
}

// groups makes the control plane of a consumer request certificates for several organisations with the key of its
// cluster. The guard rejects these, but accepts the request that Liqo makes. Dry runs, so that Liqo does not sign them.
// A certificate for two organisations could read another consumer's Secrets; the consumer's existing certificates
// cannot.
func (g *guarded) groups(t *testing.T) {
	ctx := t.Context()
	const other = "consumer2"
	secrets := g.secretsOf(t, "guard-groups-"+other, other)
	forgedToo, err := g.broker.ClientConfig("guard-groups", g.consumer.Name, other)
	require.NoError(t, err)
	eventually(t, 10*time.Second, func(ctx context.Context) error { return secrets(ctx, g.client(t, forgedToo)) })
	one, err := g.broker.ClientConfig("guard-groups", g.consumer.Name)
	require.NoError(t, err)
	for name, as := range map[string]client.Client{
		"a certificate of one organisation": g.client(t, one), "its control plane": g.controlPlaneAtBroker(t),
		"its virtual kubelet": g.consumerAtBroker(t),
	} {
		err := secrets(ctx, as)
		assert.True(t, kerrors.IsForbidden(err), "%s lists the Secrets of %s: %v", name, other, err)
	}

	controlPlane := g.controlPlaneAtBroker(t)
	key, _, err := authentication.GetClusterKeys(ctx, g.consumer.Client, "liqo")
	require.NoError(t, err)
	consumer := liqov1beta1.ClusterID(g.consumer.Name)
	slice := &authv1beta1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			// Liqo's replicator sets these labels.
			Name: "guard-groups", Namespace: "liqo-tenant-" + g.consumer.Name, Labels: map[string]string{
				consts.ReplicationRequestedLabel: "false", consts.ReplicationStatusLabel: "true",
				consts.ReplicationOriginLabel: g.consumer.Name,
				consts.RemoteClusterID:        g.consumer.Name, consts.ReplicationDestinationLabel: g.broker.Name,
			},
		},
		Spec: authv1beta1.ResourceSliceSpec{ConsumerClusterID: &consumer, Class: "broker"},
	}
	honest, err := authentication.GenerateCSRForResourceSlice(key, slice)
	require.NoError(t, err)
	forge := func(organization string) []byte {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{
			CommonName: authentication.CommonNameResourceSliceCSR(slice), Organization: []string{g.consumer.Name, organization},
		}}, key)
		require.NoError(t, err)
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}

	const because = "spec.csr must name one common name and one organisation"
	renew := func(csr []byte) *authv1beta1.Renew {
		return &authv1beta1.Renew{
			ObjectMeta: *slice.ObjectMeta.DeepCopy(), Spec: authv1beta1.RenewSpec{ConsumerClusterID: consumer, CSR: csr},
		}
	}
	asking := func(csr []byte) *authv1beta1.ResourceSlice {
		o := slice.DeepCopy()
		o.Spec.CSR = csr
		return o
	}
	for _, organization := range []string{other, "kubeadm:cluster-admins"} {
		forged := forge(organization)
		refusedFor(t, controlPlane.Create(ctx, asking(forged), client.DryRunAll), because)
		refusedFor(t, controlPlane.Create(ctx, renew(forged), client.DryRunAll), because)
	}
	require.NoError(t, controlPlane.Create(ctx, asking(honest), client.DryRunAll))
	require.NoError(t, controlPlane.Create(ctx, renew(honest), client.DryRunAll))
}

// secretsOf creates a namespace with a Secret that belongs to a consumer, as Liqo's NamespaceMap controller does, by a
// binding to the group with the consumer's name. The returned function lists the Secrets.
func (g *guarded) secretsOf(t *testing.T, namespace, consumer string) func(context.Context, client.Client) error {
	t.Helper()
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "confidential", Namespace: namespace}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-" + consumer, Namespace: namespace},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: consumer}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: consts.RemoteNamespaceClusterRoleName},
		},
	} {
		require.NoError(t, g.broker.Client.Create(t.Context(), o))
	}
	return func(ctx context.Context, as client.Client) error {
		var list corev1.SecretList
		if err := as.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return fmt.Errorf("no Secret in %s", namespace)
		}
		return nil
	}
}

// refusedFor asserts that a request was forbidden with a reason.
func refusedFor(t *testing.T, err error, because string) {
	t.Helper()
	assert.True(t, kerrors.IsForbidden(err) && strings.Contains(err.Error(), because), "%s: %v", because, err)
}
