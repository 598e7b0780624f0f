package main

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/plugin"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubectl"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubectl/check/checktest"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// federation is a broker's cluster with three providers and two consumers, at one point in time.
type federation struct {
	client client.WithWatch
	now    time.Time
	// left is the number of pods of a drained provider that the next read of it reports.
	left int
}

func newFederation(t *testing.T) *federation {
	t.Helper()
	f := &federation{left: 2, now: time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)}
	scheme, err := apischeme.New()
	require.NoError(t, err)
	objects := []client.Object{
		f.provider("provider1", "4", "0.031", "eu-west", "2", 2),
		f.provider("provider2", "8", "0.045", "eu-north", "1", 1),
		f.provider("provider3", "16", "", "us-east", "0", 0),
	}
	for _, id := range []string{"provider1", "provider2", "provider3"} {
		objects = append(objects, f.peering(id)...)
	}
	for _, id := range []string{"consumer1", "consumer2"} {
		objects = append(objects, &liqov1beta1.ForeignCluster{
			ObjectMeta: metav1.ObjectMeta{Name: id}, Status: liqov1beta1.ForeignClusterStatus{Role: liqov1beta1.ConsumerRole},
		})
	}
	objects = append(
		objects, f.namespace("default", ""), f.namespace("shop-consumer1", "consumer1"), f.namespace("lab-consumer2", "consumer2"),
		f.pod("shop-consumer1", "web-0", "provider1", "provider1 84: price 43, free 23, spread 18"),
		f.pod("shop-consumer1", "web-1", "provider2", "provider2 81: price 29, spread 29, free 23"),
		f.pod("lab-consumer2", "train-0", "provider1", "provider1 77: price 43, free 34"),
		f.waiting("shop-consumer1", "db-0"),
	)
	objects = append(objects, f.installation(t)...)
	objects = append(objects, f.policies()...)
	objects = append(objects, f.shares()...)
	f.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			if pod, ok := o.(*corev1.Pod); ok {
				return []string{pod.Spec.NodeName}
			}
			return []string{"liqo-broker"} // The fake supports no other metadata; all pods here exist.
		}).
		WithInterceptorFuncs(interceptor.Funcs{Get: f.get, Create: review}).Build()
	return f
}

// open opens a session with this federation instead of an API server.
func (f *federation) open(c *plugin.Connection, cmd *cobra.Command) (*kubectl.Session, error) {
	namespace := c.Overrides.Context.Namespace
	if namespace == "" {
		namespace = "default"
	}
	return &kubectl.Session{
		Client: f.client, Namespace: namespace, RequestTimeout: c.RequestTimeout,
		Now: func() time.Time { return f.now }, Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
	}, nil
}

// policies returns a policy. No pod uses it: the labels of the pods do not match.
func (f *federation) policies() []client.Object {
	cheap := &v1alpha1.PlacementPolicy{ObjectMeta: f.created(), Spec: v1alpha1.PlacementPolicySpec{
		Priority: 10, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "batch"}},
		Weights: []v1alpha1.Weight{{Name: "price", Weight: 3}, {Name: "free", Weight: 1}},
		Filter:  "provider.attributes.region == 'eu-west'", Failover: v1alpha1.Failover{After: &metav1.Duration{Duration: 5 * time.Minute}},
	}}
	cheap.Name = "cheap"
	cheap.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PolicyValid, Status: metav1.ConditionTrue}}
	return []client.Object{cheap}
}

// shares returns the ConsumerClusters: consumer2 has borrowed from consumer1.
func (f *federation) shares() []client.Object {
	cpu := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
	}
	first := &v1alpha1.ConsumerCluster{ObjectMeta: f.created(), Spec: v1alpha1.ConsumerClusterSpec{
		Weight: ptr.To[int32](2), Guaranteed: cpu("16"),
	}}
	first.Name = "consumer1"
	first.Status = v1alpha1.ConsumerClusterStatus{
		Guaranteed: cpu("16"), Granted: cpu("8"), Used: cpu("2"), Lent: cpu("8"), Share: "0.000", Pods: 3,
	}
	second := &v1alpha1.ConsumerCluster{ObjectMeta: f.created()}
	second.Name = "consumer2"
	second.Status = v1alpha1.ConsumerClusterStatus{
		Granted: cpu("20"), Used: cpu("7"), Borrowed: cpu("20"), Share: "0.250", DominantResource: corev1.ResourceCPU, Pods: 1,
	}
	return []client.Object{first, second}
}

func (f *federation) created() metav1.ObjectMeta {
	return metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(f.now.Add(-49 * time.Hour))}
}

func (f *federation) provider(id, cpu, price, region, assigned string, pods int32) *v1alpha1.ProviderCluster {
	pc := &v1alpha1.ProviderCluster{ObjectMeta: f.created()}
	pc.Name = id
	pc.Spec.Attributes = map[string]string{"region": region}
	if price != "" {
		pc.Spec.Attributes["price"] = price
	}
	latency := int64(4)
	free := resource.MustParse(cpu)
	free.Sub(resource.MustParse(assigned))
	amounts := v1alpha1.Resources{
		Granted:  corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("16Gi")},
		Assigned: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(assigned)},
		Free:     corev1.ResourceList{corev1.ResourceCPU: free},
	}
	pc.Status = v1alpha1.ProviderClusterStatus{
		Pods: pods, Resources: amounts,
		Conditions:   []metav1.Condition{{Type: v1alpha1.ProviderReady, Status: metav1.ConditionTrue, Reason: "Ready"}},
		VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: id + "-a", Ready: true, Resources: amounts, Pods: pods}},
		KPIs: v1alpha1.KPIs{
			LatencyMilliseconds: &latency, PodStart: &v1alpha1.PodStart{P50Milliseconds: 2100, P90Milliseconds: 4800},
			Started: 39, Failed: 1, Uptime: v1alpha1.Uptime{LastDay: "0.999"},
		},
		Summary: v1alpha1.Summary{CPU: assigned + "/" + cpu, Memory: "0/16Gi", Uptime: "99.9%", Latency: "4ms"},
	}
	if id == "provider3" {
		pc.Status.Conditions[0] = metav1.Condition{
			Type: v1alpha1.ProviderReady, Status: metav1.ConditionFalse, Reason: "NotReady",
			Message: "Reachable: NoAnswer, dial tcp 10.0.0.3:6443: connect: connection refused",
		}
		pc.Status.Conditions = append(pc.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ProviderReachable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoAnswer,
		})
		pc.Status.VirtualNodes[0].Ready = false
		pc.Status.KPIs = v1alpha1.KPIs{MovedAway: 4}
		pc.Status.Summary.Uptime, pc.Status.Summary.Latency = "", ""
	}
	return pc
}

// peering returns Liqo's objects for a provider.
func (f *federation) peering(id string) []client.Object {
	mapping := offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "liqo-tenant-" + id, Name: id, Labels: map[string]string{consts.RemoteClusterID: id},
	}}
	mapping.Spec.DesiredMapping, mapping.Status.CurrentMapping = map[string]string{}, map[string]offloadingv1beta1.RemoteNamespaceStatus{}
	for _, ns := range []string{"shop-consumer1", "lab-consumer2"} {
		mapping.Spec.DesiredMapping[ns] = ns
		mapping.Status.CurrentMapping[ns] = offloadingv1beta1.RemoteNamespaceStatus{
			RemoteNamespace: ns, Phase: offloadingv1beta1.MappingAccepted,
		}
	}
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-" + id, Labels: map[string]string{
			consts.RemoteClusterID: id, consts.TenantNamespaceLabel: "true",
		}}},
		&liqov1beta1.ForeignCluster{
			ObjectMeta: metav1.ObjectMeta{Name: id}, Status: liqov1beta1.ForeignClusterStatus{Role: liqov1beta1.ProviderRole},
		},
		&offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + id, Name: id + "-a"},
			Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: liqov1beta1.ClusterID(id), Template: virtualKubelet(id)},
		}, &mapping,
	}
}

// virtualKubelet returns the Deployment of a provider's virtual kubelet. The one of provider3 is older.
func virtualKubelet(id string) *offloadingv1beta1.DeploymentTemplate {
	version := "v0.2.0"
	if id == "provider3" {
		version = "v0.1.0"
	}
	template := &offloadingv1beta1.DeploymentTemplate{}
	template.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "virtual-kubelet", Image: repository + ":" + version, Args: []string{"--broker-node=liqo-broker"},
	}}
	return template
}

// repository is the name of the image.
const repository = "registry.example.com/liqo-broker-vk"

// deploy is the directory of the manifests; tests change the working directory.
var deploy, errDeploy = filepath.Abs("../../deploy")

// installationFiles reads the files of deploy once, which takes long.
var installationFiles = sync.OnceValues(func() ([]client.Object, error) {
	if errDeploy != nil {
		return nil, errDeploy
	}
	return checktest.Installation(deploy)
})

// installation returns the objects of the broker's installation, without a policy of the guard, and Liqo's.
func (f *federation) installation(t *testing.T) []client.Object {
	t.Helper()
	files, err := installationFiles()
	require.NoError(t, err)
	objects := make([]client.Object, 0, len(files))
	for _, o := range files {
		objects = append(objects, o.DeepCopyObject().(client.Object))
	}
	objects = slices.DeleteFunc(objects, func(o client.Object) bool {
		_, isPolicy := o.(*admissionv1.ValidatingAdmissionPolicy)
		return isPolicy && o.GetName() == "liqo-broker-exposure"
	})
	for _, o := range objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			o.Spec.Template.Spec.Containers[0].Image = repository + ":v0.2.0"
		case *offloadingv1beta1.VkOptionsTemplate:
			o.Spec.ContainerImage = repository + ":v0.2.0"
		case *corev1.Service:
			o.Spec.Type = corev1.ServiceTypeLoadBalancer
			o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		}
	}
	return append(
		objects,
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-controller-manager", Labels: map[string]string{
			"app.kubernetes.io/name": "controller-manager", "app.kubernetes.io/part-of": "liqo", "app.kubernetes.io/version": "v1.2.0",
		}}},
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "liqo-broker"},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		},
		&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "liqo-broker"},
			Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: f.now}},
		},
	)
}

// review answers reviews of the caller's rights.
func review(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
	asked, ok := o.(*authorizationv1.SelfSubjectAccessReview)
	if !ok {
		return c.Create(ctx, o, options...)
	}
	asked.Status.Allowed = true
	return nil
}

func (f *federation) namespace(name, consumer string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if consumer != "" {
		ns.Labels = map[string]string{consts.RemoteClusterID: consumer}
		ns.Annotations = map[string]string{consts.RemoteNamespaceManagedByAnnotationKey: "liqo-tenant/" + consumer}
	}
	return ns
}

// pod returns a pod that runs at a provider.
func (f *federation) pod(namespace, name, provider, decision string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: f.created()}
	pod.Namespace, pod.Name, pod.UID = namespace, name, types.UID(namespace+name)
	pod.CreationTimestamp = metav1.NewTime(f.now.Add(-12 * time.Minute))
	pod.Labels = map[string]string{"app": name[:len(name)-2], v1alpha1.ProviderLabel: provider, v1alpha1.VirtualNodeLabel: provider + "-a"}
	pod.Annotations = map[string]string{
		v1alpha1.DecisionAnnotation:   decision,
		v1alpha1.AssignedAtAnnotation: f.now.Add(-11 * time.Minute).Format(time.RFC3339Nano),
	}
	pod.Spec = corev1.PodSpec{NodeName: "liqo-broker", Containers: []corev1.Container{{Name: "c"}}}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Ready: true}}}
	return pod
}

// waiting returns a pod that fits no slice.
func (f *federation) waiting(namespace, name string) *corev1.Pod {
	pod := f.pod(namespace, name, "", "")
	pod.Labels, pod.Annotations = map[string]string{"app": "db"}, nil
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9")}
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: v1alpha1.ConditionAssigned, Status: corev1.ConditionFalse, Reason: "NoProviderFits",
		Message: "no provider cluster fits: insufficient cpu, not ready",
	}}}
	return pod
}

// get moves one pod away from a drained provider each time that the provider is read, as the broker does in the
// meantime.
func (f *federation) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption,
) error {
	err := c.Get(ctx, key, o, options...)
	pc, ok := o.(*v1alpha1.ProviderCluster)
	if err != nil || !ok || !pc.Spec.Drain {
		return err
	}
	drained := metav1.Condition{
		Type: v1alpha1.ProviderDrained, Status: metav1.ConditionFalse, Reason: "PodsLeft", ObservedGeneration: pc.Generation,
		Message: map[int]string{1: "1 pod is left", 2: "2 pods are left"}[f.left],
	}
	if f.left--; f.left < 0 {
		drained.Status, drained.Reason = metav1.ConditionTrue, "Empty"
	}
	meta.SetStatusCondition(&pc.Status.Conditions, drained)
	return nil
}
