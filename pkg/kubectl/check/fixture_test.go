package check

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubectl/check/checktest"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// ofTest is the time of the tests, by the clock of the API server.
func ofTest() time.Time { return time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC) }

// cluster is a broker's cluster, and the answers to reviews.
type cluster struct {
	objects []client.Object
	// denied are the rights that the caller lacks, such as "list pods".
	denied map[string]bool
	// forbidden are the lists that the API server refuses, by the type of the list.
	forbidden map[string]error
	ahead     time.Duration
	version   string
}

// installationFiles reads the files of deploy once, which takes long.
var installationFiles = sync.OnceValues(func() ([]client.Object, error) { return checktest.Installation("../../../deploy") })

// schemeOfTest makes the scheme once, for the same reason.
var schemeOfTest = sync.OnceValues(apischeme.New)

// complete is an installation by the files of deploy, with one provider.
func complete(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{denied: map[string]bool{}, forbidden: map[string]error{}, version: "dev"}
	files, err := installationFiles()
	require.NoError(t, err)
	for _, o := range files {
		c.objects = append(c.objects, o.DeepCopyObject().(client.Object))
	}
	service := find[*corev1.Service](c, "liqo-network-manager")
	service.Spec.Type = corev1.ServiceTypeLoadBalancer
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}

	vn := &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-p1", Name: "p1"},
		Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: "p1", Template: &offloadingv1beta1.DeploymentTemplate{}},
	}
	vn.Spec.Template.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "virtual-kubelet", Image: "liqo-broker-vk:dev", Args: []string{"--broker-node=liqo-broker", "--create-node=false"},
	}}
	c.objects = append(c.objects,
		vn,
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-controller-manager", Labels: map[string]string{
			nameLabel: "controller-manager", partOfLabel: "liqo", versionLabel: "v1.2.0",
		}}},
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "liqo-broker"},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		},
		&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "liqo-broker"},
			Spec: coordinationv1.LeaseSpec{
				LeaseDurationSeconds: ptr.To(int32(20)), RenewTime: &metav1.MicroTime{Time: ofTest().Add(-3 * time.Second)},
			},
		},
		&v1alpha1.ProviderCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "p1"},
			Status: v1alpha1.ProviderClusterStatus{
				Conditions:   []metav1.Condition{{Type: v1alpha1.ProviderReady, Status: metav1.ConditionTrue}},
				VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: "p1", Ready: true}},
			},
		},
		&authv1beta1.Identity{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-p1", Name: "resourceslice-p1"},
			Spec: authv1beta1.IdentitySpec{ClusterID: "p1", AuthParams: authv1beta1.AuthParams{
				SignedCRT: certificate(t, ofTest().Add(-10*24*time.Hour), ofTest().Add(80*24*time.Hour)),
			}},
		},
	)
	return c
}

// certificate returns a certificate in PEM that is valid in a time.
func certificate(t *testing.T, from, until time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// find returns the first object of a type with a name.
func find[O client.Object](c *cluster, name string) O {
	for _, o := range c.objects {
		if found, ok := o.(O); ok && o.GetName() == name {
			return found
		}
	}
	panic("no object " + name)
}

// remove removes the objects of a type with one of the names; all without names.
func remove[O client.Object](c *cluster, names ...string) {
	var left []client.Object
	for _, o := range c.objects {
		_, is := o.(O)
		if is && (len(names) == 0 || slices.Contains(names, o.GetName())) {
			continue
		}
		left = append(left, o)
	}
	c.objects = left
}

// broker returns the pods of the broker.
func (c *cluster) broker() *corev1.PodSpec {
	return &find[*appsv1.Deployment](c, "liqo-broker").Spec.Template.Spec
}

// kubelet returns the container of the provider's virtual kubelet.
func (c *cluster) kubelet() *corev1.Container {
	return &find[*offloadingv1beta1.VirtualNode](c, "p1").Spec.Template.Spec.Template.Spec.Containers[0]
}

// condition sets conditions of the provider.
func (c *cluster) conditions(conditions ...metav1.Condition) *v1alpha1.ProviderCluster {
	pc := find[*v1alpha1.ProviderCluster](c, "p1")
	pc.Status.Conditions = conditions
	return pc
}

// run checks the cluster.
func (c *cluster) run(t *testing.T) (*Report, error) {
	t.Helper()
	scheme, err := schemeOfTest()
	require.NoError(t, err)
	objects := make([]client.Object, 0, len(c.objects))
	for _, o := range c.objects {
		o = o.DeepCopyObject().(client.Object)
		o.SetResourceVersion("")
		objects = append(objects, o)
	}
	return Run(t.Context(), &Config{
		Client: &apiServer{Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), cluster: c},
		Node:   "liqo-broker", Version: c.version, Liqo: "v1.2.0",
		Now:   func() time.Time { return ofTest().Add(-c.ahead) },
		Ahead: func() (time.Duration, bool) { return c.ahead, true },
	})
}

// apiServer answers reads and reviews.
type apiServer struct {
	client.Reader
	*cluster
}

func (a *apiServer) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if err := a.forbidden[typeOf(into)]; err != nil {
		return err
	}
	return a.Reader.List(ctx, into, options...)
}

func (a *apiServer) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if err := a.forbidden[typeOf(into)]; err != nil {
		return err
	}
	return a.Reader.Get(ctx, key, into, options...)
}

func (a *apiServer) Review(_ context.Context, review client.Object) error {
	switch review := review.(type) {
	case *authorizationv1.SelfSubjectAccessReview:
		asked := review.Spec.ResourceAttributes
		review.Status.Allowed = !a.denied[Right{asked.Verb, asked.Group, asked.Resource}.String()]
	case *authenticationv1.SelfSubjectReview:
		review.Status.UserInfo.Username = "jane"
	}
	return a.forbidden[typeOf(review)]
}
