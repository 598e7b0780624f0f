package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// guarded is a broker cluster with the objects that deploy/ installs there but no running broker, and a consumer with
// an unmodified virtual kubelet.
type guarded struct {
	*sandbox.Sandbox
	consumer, broker *sandbox.Cluster
}

// Namespaces of the consumer.
const guardLabels, guardDirect, guardEarly = "guard-labels", "guard-direct", "guard-early"

// guardAndManifests tests the guarantees of deploy/ against real API servers. No broker runs meanwhile: it would act on
// the objects of the scenarios.
func (b *brokered) guardAndManifests(t *testing.T) {
	g := &guarded{b.Sandbox, b.consumer, b.broker}
	require.NoError(t, b.Kill(brokerComponent))
	t.Cleanup(func() {
		for _, name := range []string{guardLabels, guardDirect, guardEarly} {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			require.NoError(t, client.IgnoreNotFound(b.consumer.Client.Delete(context.Background(), ns)))
		}
		require.NoError(t, b.Restart(context.Background(), brokerComponent))
	})
	g.inForce(t)

	t.Run("a consumer chooses by a label of its pod", g.consumerLabel)
	t.Run("a consumer chooses with its credentials", g.consumerCredentials)
	t.Run("a consumer grants itself something", g.grants)
	t.Run("a consumer asks for what takes forever to read", g.quantities)
	t.Run("a pod of a consumer waits for its namespace", g.early)
	t.Run("a consumer writes more than Liqo does", g.consumerWrites)
	t.Run("a consumer writes in Liqo's place", g.inLiqosPlace)
	t.Run("a consumer gets one group", g.groups)
	t.Run("an owner of a namespace", g.namespaceOwner)
	t.Run("a binding", g.binding)
	t.Run("the broker and the virtual kubelets", g.brokerAndKubelets)
	t.Run("all services are accepted", g.dryRun)
	t.Run("the broker's roles", g.roles)
	t.Run("the broker approves its own certificate only", g.certificates)
	t.Run("the API is validated", g.api)
}

// inForce waits until the guard is in force.
func (g *guarded) inForce(t *testing.T) {
	t.Helper()
	owner := g.owner(t, "guard-probe")
	pod := unscheduled("guard-probe", "probe")
	pod.Labels[brokeringv1alpha1.ProviderLabel] = "x"
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		_, err := owner.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return refusal(err, brokeringv1alpha1.ProviderLabel)
	})
}

// refusal returns nil if err is a rejection by the guard that names the key.
func refusal(err error, key string) error {
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only the broker may set, change or remove "+key) {
		return fmt.Errorf("not refused because of %s: %w", key, err)
	}
	return nil
}

// eachKey calls do for every guarded key, with a function that writes the key to an object.
func eachKey(do func(key string, write func(o metav1.Object, value string))) {
	for _, key := range []string{brokeringv1alpha1.VirtualNodeLabel, brokeringv1alpha1.ProviderLabel} {
		do(key, func(o metav1.Object, value string) { o.SetLabels(with(o.GetLabels(), key, value)) })
	}
	for _, key := range brokeringv1alpha1.BrokerAnnotations() {
		do(key, func(o metav1.Object, value string) { o.SetAnnotations(with(o.GetAnnotations(), key, value)) })
	}
}

// with returns a copy of m with the key set, or without the key for the empty value.
func with(m map[string]string, key, value string) map[string]string {
	out := map[string]string{key: value}
	for k, v := range m {
		if k != key {
			out[k] = v
		}
	}
	if value == "" {
		delete(out, key)
	}
	return out
}

// unscheduled returns a pod that no scheduler binds.
func unscheduled(namespace, name string) *corev1.Pod {
	pod := newPod(namespace, name)
	pod.Spec.SchedulerName = "none"
	return pod
}

// owner creates a namespace in the broker's cluster, and a user who has all rights on its pods and their subresources.
func (g *guarded) owner(t *testing.T, namespace string) kubernetes.Interface {
	t.Helper()
	ctx := t.Context()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	require.NoError(t, g.broker.Client.Create(ctx, ns))
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: namespace},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Verbs: []string{"*"},
			Resources: []string{
				"pods", "pods/status", "pods/ephemeralcontainers", "pods/resize", "pods/binding", "bindings", "serviceaccounts",
			},
		}},
	}
	require.NoError(t, g.broker.Client.Create(ctx, role))
	require.NoError(t, g.broker.Client.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "owner"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "owner"}},
	}))
	eventually(t, 10*time.Second, func(ctx context.Context) error {
		_, err := g.broker.Kube.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	config, err := g.broker.ClientConfig("owner")
	require.NoError(t, err)
	return newClient(t, config)
}

func newClient(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	config.QPS = -1
	c, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return c
}

// as returns a client of the broker's cluster for a ServiceAccount.
func (g *guarded) as(t *testing.T, namespace, name string) kubernetes.Interface {
	t.Helper()
	return newClient(t, g.impersonating(namespace, name))
}

func (g *guarded) impersonating(namespace, name string) *rest.Config {
	config := rest.CopyConfig(g.broker.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + name,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	return config
}

// consumerLabel checks that the consumer's virtual kubelet cannot forward a pod with a guarded label, and that an event
// has the reason. It forwards a pod without such a label. A label that the broker writes there survives the updates of
// Liqo's controllers.
func (g *guarded) consumerLabel(t *testing.T) {
	ctx := t.Context()
	const namespace = guardLabels
	require.NoError(t, g.consumer.Offload(ctx, namespace))
	atBroker := g.consumer.RemoteNamespace(namespace)
	// Normally the broker does this; no pod arrives before.
	require.NoError(t, g.broker.Offload(ctx, atBroker))

	chooser := newPod(namespace, "chooser")
	chooser.Labels[brokeringv1alpha1.VirtualNodeLabel] = sandbox.Provider(1)
	require.NoError(t, g.consumer.Client.Create(ctx, chooser))
	plain := newPod(namespace, "plain")
	require.NoError(t, g.consumer.Client.Create(ctx, plain))

	pods := g.broker.Kube.CoreV1().Pods(atBroker)
	eventually(t, 30*time.Second, func(ctx context.Context) error {
		_, err := pods.Get(ctx, plain.Name, metav1.GetOptions{})
		return err
	})
	eventually(t, 30*time.Second, func(ctx context.Context) error {
		events, err := g.consumer.Kube.CoreV1().Events(namespace).List(ctx,
			metav1.ListOptions{FieldSelector: "involvedObject.name=" + chooser.Name})
		if err != nil {
			return err
		}
		for i := range events.Items {
			if strings.Contains(events.Items[i].Message, "only the broker may set, change or remove "+brokeringv1alpha1.VirtualNodeLabel) {
				return nil
			}
		}
		return fmt.Errorf("none of %d events has the reason", len(events.Items))
	})
	_, err := pods.Get(ctx, chooser.Name, metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "the pod reached the broker: %v", err)

	broker := g.as(t, sandbox.BrokerComponent, sandbox.BrokerComponent).CoreV1().Pods(atBroker)
	assigned := []byte(`{"metadata":{"labels":{"` + brokeringv1alpha1.VirtualNodeLabel + `":"v1"}}}`)
	_, err = broker.Patch(ctx, plain.Name, types.MergePatchType, assigned, metav1.PatchOptions{})
	require.NoError(t, err)
	// Use a patch, because the virtual kubelet writes the status at the same time.
	later := []byte(`{"metadata":{"labels":{"later":"yes"}}}`)
	require.NoError(t, g.consumer.Client.Patch(ctx, plain, client.RawPatch(types.MergePatchType, later)))
	eventually(t, 30*time.Second, func(ctx context.Context) error {
		pod, err := pods.Get(ctx, plain.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Labels["later"] != "yes" || pod.Labels[brokeringv1alpha1.VirtualNodeLabel] != "v1" {
			return fmt.Errorf("labels at the broker: %v", pod.Labels)
		}
		return nil
	})
}

// consumerCredentials checks that the credentials that a consumer's virtual kubelet uses at the broker may write
// ShadowPods, but not the guarded keys.
func (g *guarded) consumerCredentials(t *testing.T) {
	ctx := t.Context()
	const namespace = guardDirect
	require.NoError(t, g.consumer.Offload(ctx, namespace))
	direct := g.consumerAtBroker(t)
	shadow := func(name string) *offloadingv1beta1.ShadowPod {
		pod := newPod(g.consumer.RemoteNamespace(namespace), name)
		return &offloadingv1beta1.ShadowPod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: pod.Namespace, Labels: pod.Labels},
			Spec:       offloadingv1beta1.ShadowPodSpec{Pod: pod.Spec},
		}
	}
	existing := shadow("existing")
	// Liqo's webhook requires these labels, and a known creator.
	var virtual offloadingv1beta1.ShadowPodList
	require.NoError(t, g.broker.Client.List(ctx, &virtual))
	require.NotEmpty(t, virtual.Items, "the pod of the scenario before is there to be copied")
	// Use another node name: the virtual kubelet removes ShadowPods of its node that it does not know.
	existing.Labels = with(virtual.Items[0].Labels, "offloading.liqo.io/nodename", "elsewhere")
	require.NoError(t, direct.Create(ctx, existing))
	// Liqo's controller writes it at the same time.
	update := func(change func(*offloadingv1beta1.ShadowPod)) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			require.NoError(t, direct.Get(ctx, client.ObjectKeyFromObject(existing), existing))
			changed := existing.DeepCopy()
			change(changed)
			return direct.Update(ctx, changed)
		})
	}
	eachKey(func(key string, write func(metav1.Object, string)) {
		created := shadow("created")
		created.Labels = existing.Labels
		write(created, "x")
		assert.NoError(t, refusal(direct.Create(ctx, created), key), "create")
		assert.NoError(t, refusal(update(func(o *offloadingv1beta1.ShadowPod) { write(o, "x") }), key), "update")
		changed := existing.DeepCopy()
		write(changed, "x")
		assert.NoError(t, refusal(direct.Patch(ctx, changed, client.MergeFrom(existing)), key), "patch")
	})
	for _, key := range brokeringv1alpha1.RootAnnotations() {
		err := update(func(o *offloadingv1beta1.ShadowPod) { o.Annotations = with(o.Annotations, key, "192.0.2.1") })
		assert.True(t, apierrors.IsForbidden(err), "%v", err)
		assert.ErrorContains(t, err, "only virtual kubelets may set, change or remove "+key)
	}
	eventually(t, 10*time.Second, func(ctx context.Context) error {
		if err := direct.Get(ctx, client.ObjectKeyFromObject(existing), existing); err != nil {
			return err
		}
		existing.Labels = with(existing.Labels, "unguarded", "x")
		return direct.Update(ctx, existing)
	})
	require.NoError(t, direct.Delete(ctx, existing))
}

// consumerAtBroker returns a client with the kubeconfig that the broker issued to the consumer for its virtual kubelet.
func (g *guarded) consumerAtBroker(t *testing.T) client.Client {
	t.Helper()
	return g.client(t, identity(t, g.consumer))
}

// identity returns the credentials with which a consumer's virtual kubelet authenticates at the broker.
func identity(t *testing.T, consumer *sandbox.Cluster) *rest.Config {
	t.Helper()
	return identityOf(t, consumer, authv1beta1.ResourceSliceIdentityType)
}

func identityOf(t *testing.T, consumer *sandbox.Cluster, kind authv1beta1.IdentityType) *rest.Config {
	t.Helper()
	var identities authv1beta1.IdentityList
	require.NoError(t, consumer.Client.List(t.Context(), &identities))
	for i := range identities.Items {
		id := &identities.Items[i]
		if id.Spec.Type == kind && id.Status.KubeconfigSecretRef != nil {
			return kubeconfigOf(t, consumer, id)
		}
	}
	require.Failf(t, "the consumer has no identity at the broker", "type %s", kind)
	return nil
}

// kubeconfigOf returns the kubeconfig that a consumer received with an Identity.
func kubeconfigOf(t *testing.T, consumer *sandbox.Cluster, id *authv1beta1.Identity) *rest.Config {
	t.Helper()
	secret, err := consumer.Kube.CoreV1().Secrets(id.Namespace).Get(t.Context(), id.Status.KubeconfigSecretRef.Name, metav1.GetOptions{})
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"])
	require.NoError(t, err)
	return config
}

// namespaceOwner checks that a user with all rights on the pods of a namespace can neither set, change nor remove a
// guarded key through any subresource, and is not restricted otherwise.
func (g *guarded) namespaceOwner(t *testing.T) {
	ctx := t.Context()
	const namespace = "guard-owner"
	pods := g.owner(t, namespace).CoreV1().Pods(namespace)
	administrator := g.broker.Kube.CoreV1().Pods(namespace)
	for _, name := range []string{"bare", "assigned"} {
		_, err := pods.Create(ctx, unscheduled(namespace, name), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	assigned, err := administrator.Get(ctx, "assigned", metav1.GetOptions{})
	require.NoError(t, err)
	eachKey(func(_ string, write func(metav1.Object, string)) { write(assigned, "p1") })
	_, err = administrator.Update(ctx, assigned, metav1.UpdateOptions{})
	require.NoError(t, err, "administrators may")

	eachKey(func(key string, write func(metav1.Object, string)) {
		created := unscheduled(namespace, "created")
		write(created, "x")
		_, err := pods.Create(ctx, created, metav1.CreateOptions{})
		assert.NoError(t, refusal(err, key), "create")
		for what, change := range map[string]struct{ pod, value string }{
			"set": {"bare", "x"}, "change": {"assigned", "p2"}, "remove": {"assigned", ""},
		} {
			for through, update := range updates() {
				before, err := pods.Get(ctx, change.pod, metav1.GetOptions{})
				require.NoError(t, err)
				pod := before.DeepCopy()
				write(pod, change.value)
				err = update(ctx, pods, pod)
				if err == nil && !through.writesMetadata {
					after, err := pods.Get(ctx, change.pod, metav1.GetOptions{})
					require.NoError(t, err)
					assert.Equal(t, []any{before.Labels, before.Annotations}, []any{after.Labels, after.Annotations})
					continue
				}
				assert.NoError(t, refusal(err, key), "%s through pods/%s", what, through.subresource)
			}
		}
	})
	for through, update := range updates() {
		for _, name := range []string{"bare", "assigned"} {
			pod, err := pods.Get(ctx, name, metav1.GetOptions{})
			require.NoError(t, err)
			pod.Labels = with(pod.Labels, "unguarded", "through"+through.subresource)
			assert.NoError(t, update(ctx, pods, pod), "pods/%s of %s", through.subresource, name)
		}
	}
	require.NoError(t, pods.Delete(ctx, "assigned", metav1.DeleteOptions{}))
}

type podInterface interface {
	Update(context.Context, *corev1.Pod, metav1.UpdateOptions) (*corev1.Pod, error)
	UpdateStatus(context.Context, *corev1.Pod, metav1.UpdateOptions) (*corev1.Pod, error)
	UpdateEphemeralContainers(context.Context, string, *corev1.Pod, metav1.UpdateOptions) (*corev1.Pod, error)
	UpdateResize(context.Context, string, *corev1.Pod, metav1.UpdateOptions) (*corev1.Pod, error)
}

// way is a subresource that updates a pod. At present some of them drop changes of the metadata.
type way struct {
	subresource    string
	writesMetadata bool
}

// updates returns the ways to update a pod.
func updates() map[way]func(context.Context, podInterface, *corev1.Pod) error {
	return map[way]func(context.Context, podInterface, *corev1.Pod) error{
		{"", true}: func(ctx context.Context, pods podInterface, pod *corev1.Pod) error {
			_, err := pods.Update(ctx, pod, metav1.UpdateOptions{})
			return err
		},
		{"status", true}: func(ctx context.Context, pods podInterface, pod *corev1.Pod) error {
			_, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
			return err
		},
		{"ephemeralcontainers", false}: func(ctx context.Context, pods podInterface, pod *corev1.Pod) error {
			_, err := pods.UpdateEphemeralContainers(ctx, pod.Name, pod, metav1.UpdateOptions{})
			return err
		},
		{"resize", false}: func(ctx context.Context, pods podInterface, pod *corev1.Pod) error {
			_, err := pods.UpdateResize(ctx, pod.Name, pod, metav1.UpdateOptions{})
			return err
		},
	}
}

// binding checks that the guard covers Bindings: Kubernetes copies their labels and annotations to the pod.
func (g *guarded) binding(t *testing.T) {
	ctx := t.Context()
	const namespace = "guard-binding"
	owner := g.owner(t, namespace)
	pods := owner.CoreV1().Pods(namespace)
	_, err := pods.Create(ctx, unscheduled(namespace, "bound"), metav1.CreateOptions{})
	require.NoError(t, err)
	binding := func() *corev1.Binding {
		return &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: "bound", Namespace: namespace},
			Target:     corev1.ObjectReference{Kind: "Node", Name: sandbox.Provider(1)},
		}
	}
	eachKey(func(key string, write func(metav1.Object, string)) {
		b := binding()
		write(b, "x")
		assert.NoError(t, refusal(pods.Bind(ctx, b, metav1.CreateOptions{}), key), "pods/binding")
		err := owner.CoreV1().RESTClient().Post().Namespace(namespace).Resource("bindings").Body(b).Do(ctx).Error()
		assert.NoError(t, refusal(err, key), "bindings")
	})
	require.NoError(t, pods.Bind(ctx, binding(), metav1.CreateOptions{}))
}

// brokerAndKubelets checks that the broker may write the keys, and that the virtual kubelets, which may patch all pods,
// may not.
func (g *guarded) brokerAndKubelets(t *testing.T) {
	ctx := t.Context()
	const namespace = "guard-broker"
	_, err := g.owner(t, namespace).CoreV1().Pods(namespace).Create(ctx, unscheduled(namespace, "pod"), metav1.CreateOptions{})
	require.NoError(t, err)
	broker := g.as(t, sandbox.BrokerComponent, sandbox.BrokerComponent).CoreV1().Pods(namespace)
	kubelet := g.as(t, "liqo-tenant-"+sandbox.Provider(1), sandbox.Provider(1)).CoreV1().Pods(namespace)
	eachKey(func(key string, write func(metav1.Object, string)) {
		for _, value := range []string{"p1", "p2", ""} {
			pod, err := kubelet.Get(ctx, "pod", metav1.GetOptions{})
			require.NoError(t, err)
			before := pod.DeepCopy()
			write(pod, value)
			patch, err := client.MergeFrom(before).Data(pod)
			require.NoError(t, err)
			_, err = kubelet.Patch(ctx, "pod", types.MergePatchType, patch, metav1.PatchOptions{})
			assert.NoError(t, refusal(err, key))
			_, err = broker.Patch(ctx, "pod", types.MergePatchType, patch, metav1.PatchOptions{})
			assert.NoError(t, err, "%s=%q", key, value)
		}
	})
}
