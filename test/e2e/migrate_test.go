package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// migrated does the steps of docs/migrate.md: a provider leaves the broker and gets a Node of Liqo's own, the pods of an
// application go there, and all of it comes back. From the application's first pod on, all its replicas are available.
func (b *brokered) migrated(t *testing.T) {
	const replicas = 4
	ctx, ns := t.Context(), b.namespace(t)
	var template offloadingv1beta1.VkOptionsTemplate
	require.NoError(t, b.broker.Client.Get(ctx, sandbox.DefaultTemplate, &template))
	ours := template.Spec.DeepCopy()
	restore := func() {
		b.changeTemplate(t, func(s *offloadingv1beta1.VkOptionsTemplateSpec) { *s = *ours.DeepCopy() })
	}
	t.Cleanup(func() {
		if t.Failed() {
			restore()
			b.cordonNode(t, brokerNode, false)
			b.recreateVirtualNode(t, "provider3")
		}
	})

	// Back: provider3 leaves the broker, without pods, and has a Node of its own.
	b.restore(t, "provider3")
	b.decide(t, "provider3", func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = true })
	b.condition(t, "provider3", brokeringv1alpha1.ProviderDrained, brokeringv1alpha1.ReasonEmpty)
	b.changeTemplate(t, func(s *offloadingv1beta1.VkOptionsTemplateSpec) {
		// As in Liqo's chart.
		s.CreateNode, s.ContainerImage, s.ExtraArgs = true, sandbox.ImageStock, []string{"--enable-apiserver-support=true"}
	})
	b.recreateVirtualNode(t, "provider3")
	require.NoError(t, b.broker.WaitNodeReady(ctx, "provider3"))
	b.condition(t, "provider3", brokeringv1alpha1.ProviderKubeletReady, "ServesAnotherNode")
	b.decide(t, "provider3", func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = false })
	b.cordonNode(t, "provider3", true)
	deployment := newDeployment(ns, "web", replicas)
	deployment.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: ptr.To(intstr.FromInt32(0))}
	require.NoError(t, b.broker.Client.Create(ctx, deployment))
	eventually(t, patient, func(ctx context.Context) error { return b.allOn(ctx, ns, brokerNode, replicas) })
	available := b.watchAvailable(t, deployment)
	b.cordonNode(t, "provider3", false)
	b.cordonNode(t, brokerNode, true)
	b.rollOut(t, deployment)
	eventually(t, 2*patient, func(ctx context.Context) error { return b.allOn(ctx, ns, "provider3", replicas) })

	// Forth: the pods go to the broker's Node, and then provider3 to the broker.
	b.cordonNode(t, brokerNode, false)
	b.cordonNode(t, "provider3", true)
	b.create(t, ns, "waits", 1, only("provider3"))
	b.explained(t, ns, "waits-0", "NoProviderFits", "no provider cluster fits", "not ready")
	b.rollOut(t, deployment)
	eventually(t, 2*patient, func(ctx context.Context) error { return b.allOn(ctx, ns, brokerNode, replicas+1) })
	restore()
	b.recreateVirtualNode(t, "provider3")
	eventually(t, patient, func(ctx context.Context) error {
		err := b.broker.Client.Get(ctx, client.ObjectKey{Name: "provider3"}, &corev1.Node{})
		if err == nil {
			return errors.New("the Node of provider3 is still there")
		}
		if !kerrors.IsNotFound(err) {
			return err
		}
		return b.runsAt(ctx, ns, "waits-0", "provider3")
	})
	available.end(t)
}

// condition waits for the reason of a condition of a provider.
func (b *brokered) condition(t *testing.T, provider, kind, reason string) {
	t.Helper()
	eventually(t, 2*patient, func(ctx context.Context) error {
		var pc brokeringv1alpha1.ProviderCluster
		if err := b.broker.Client.Get(ctx, client.ObjectKey{Name: provider}, &pc); err != nil {
			return err
		}
		if err := conditionIs(&pc, kind, reason); err != nil {
			return fmt.Errorf("%w; %s", err, b.kubelets(ctx, provider))
		}
		return nil
	})
}

// changeTemplate changes the options of virtual kubelets that are made from now on.
func (b *brokered) changeTemplate(t *testing.T, change func(*offloadingv1beta1.VkOptionsTemplateSpec)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var template offloadingv1beta1.VkOptionsTemplate
		if err := b.broker.Client.Get(ctx, sandbox.DefaultTemplate, &template); err != nil {
			return err
		}
		change(&template.Spec)
		return b.broker.Client.Update(ctx, &template)
	}))
}

// recreateVirtualNode deletes the VirtualNode of a provider, and waits until Liqo has made it again of its ResourceSlice.
func (b *brokered) recreateVirtualNode(t *testing.T, provider string) {
	t.Helper()
	key := client.ObjectKey{Namespace: "liqo-tenant-" + provider, Name: provider}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patient)
	defer cancel()
	var before offloadingv1beta1.VirtualNode
	require.NoError(t, b.broker.Client.Get(ctx, key, &before))
	require.NoError(t, b.broker.Client.Delete(ctx, &before))
	within(ctx, t, func(ctx context.Context) error {
		var now offloadingv1beta1.VirtualNode
		if err := b.broker.Client.Get(ctx, key, &now); err != nil {
			return err
		}
		if now.UID == before.UID {
			return fmt.Errorf("VirtualNode %s is being deleted: %v", key.Name, now.Status.Conditions)
		}
		return nil
	})
}

func (b *brokered) cordonNode(t *testing.T, name string, cordoned bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	body := fmt.Appendf(nil, `{"spec": {"unschedulable": %t}}`, cordoned)
	require.NoError(t, b.broker.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, body)))
}

// rollOut recreates the pods of a Deployment as kubectl rollout restart does.
func (b *brokered) rollOut(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	body := fmt.Appendf(nil, `{"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": %q}}}}}`,
		time.Now().Format(time.RFC3339Nano))
	require.NoError(t, b.broker.Client.Patch(t.Context(), d.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, body)))
}

// allOn returns nil if a namespace has so many pods, all of a Node, of which all run that are assigned.
func (b *brokered) allOn(ctx context.Context, namespace, node string, n int) error {
	list, err := pods(ctx, b.broker, namespace)
	if err != nil {
		return err
	}
	for i := range list {
		p := &list[i]
		waits := p.Name == "waits-0"
		if p.Spec.NodeName != node || !waits && !podReady(p) {
			return fmt.Errorf("pod %s is %s on %q", p.Name, p.Status.Phase, p.Spec.NodeName)
		}
	}
	if len(list) != n {
		return fmt.Errorf("%d pods, want %d", len(list), n)
	}
	return nil
}

// watchAvailable reports if a Deployment has less than its replicas available.
func (b *brokered) watchAvailable(t *testing.T, of *appsv1.Deployment) *watching {
	t.Helper()
	eventually(t, patient, func(ctx context.Context) error {
		d := of.DeepCopy()
		if err := b.broker.Client.Get(ctx, client.ObjectKeyFromObject(of), d); err != nil {
			return err
		}
		if d.Status.AvailableReplicas != *of.Spec.Replicas {
			return fmt.Errorf("%d of %d replicas are available", d.Status.AvailableReplicas, *of.Spec.Replicas)
		}
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	w := &watching{stop: stop}
	w.follow(ctx, t, b.broker, &appsv1.DeploymentList{}, of.Namespace, func(_ apiwatch.EventType, o client.Object) {
		d := o.(*appsv1.Deployment)
		if d.Name == of.Name && d.Status.AvailableReplicas < *of.Spec.Replicas {
			w.fault("%d of %d replicas are available", d.Status.AvailableReplicas, *of.Spec.Replicas)
		}
	})
	return w
}
