package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// shares checks that a consumer with a guarantee gets it back from one that was granted, and uses, the idle part.
func (c *chain) shares(t *testing.T) {
	borrower, owner := c.consumers[0], c.consumers[1]
	amounts := func(cpu string) map[corev1.ResourceName]string {
		return map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: "4Gi", corev1.ResourcePods: "10"}
	}
	for _, of := range []*brokeringv1alpha1.ConsumerCluster{
		{ObjectMeta: metav1.ObjectMeta{Name: borrower.Name}},
		{ObjectMeta: metav1.ObjectMeta{Name: owner.Name}, Spec: brokeringv1alpha1.ConsumerClusterSpec{
			Guaranteed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("30"), corev1.ResourceMemory: resource.MustParse("4Gi")},
		}},
	} {
		require.NoError(t, c.broker.Client.Create(t.Context(), of))
		t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(c.broker.Client.Delete(context.Background(), of))) })
	}

	// The owner requests nothing, and the borrower uses more than the rest.
	lent := c.ask(t, borrower, "lent", amounts("40"))
	eventually(t, 20*time.Second, func(ctx context.Context) error { return c.offered(ctx, lent, "40") })
	direct, namespace := c.userOf(t, borrower, lent), c.offload(t, borrower)
	var shadows []*offloadingv1beta1.ShadowPod
	for i := range 4 {
		shadow := shadowPod(borrower, namespace, fmt.Sprintf("batch-%d", i), requests(corev1.ResourceCPU, "8"))
		// It has no quota at first. Kubernetes' times are in seconds, and the youngest leave.
		eventually(t, patient, func(ctx context.Context) error { return direct.Create(ctx, shadow.DeepCopy()) })
		eventually(t, patient, func(ctx context.Context) error { return c.assignedNow(ctx, shadow, time.Now().Truncate(time.Second)) })
		shadows = append(shadows, shadow)
	}
	eventually(t, patient, func(ctx context.Context) error {
		return c.consumerHas(ctx, borrower, func(s *brokeringv1alpha1.ConsumerClusterStatus) bool {
			return s.Granted.Cpu().String() == "40" && s.Used.Cpu().Cmp(resource.MustParse("32")) >= 0 && s.Borrowed.Cpu().String() == "40"
		})
	})
	require.NoError(t, c.consumerHas(t.Context(), owner, func(s *brokeringv1alpha1.ConsumerClusterStatus) bool {
		return s.Guaranteed.Cpu().String() == "30" && s.Lent.Cpu().String() == "30"
	}))

	// It requests its guarantee: the grant of the borrower shrinks at once, and then its youngest pods leave.
	own := c.ask(t, owner, "own", amounts("30"))
	eventually(t, 30*time.Second, func(ctx context.Context) error { return c.offered(ctx, lent, "18") })
	eventually(t, patient, func(ctx context.Context) error { return c.offered(ctx, own, "30") })
	eventually(t, patient, func(ctx context.Context) error {
		return c.consumerHas(ctx, borrower, func(s *brokeringv1alpha1.ConsumerClusterStatus) bool {
			return len(s.Reclaimed) == 0 && s.Granted.Cpu().String() == "18"
		})
	})
	for i, shadow := range shadows {
		var pod corev1.Pod
		require.NoError(t, c.broker.Client.Get(t.Context(), client.ObjectKeyFromObject(shadow), &pod))
		condition := podCondition(&pod, brokeringv1alpha1.ConditionAssigned)
		if i < 2 {
			assert.NotEmpty(t, pod.Labels[brokeringv1alpha1.VirtualNodeLabel], "%s is among the oldest", pod.Name)
			continue
		}
		assert.Empty(t, pod.Labels[brokeringv1alpha1.VirtualNodeLabel], "%s is among the youngest", pod.Name)
		eventually(t, patient, func(ctx context.Context) error {
			if err := c.broker.Client.Get(ctx, client.ObjectKeyFromObject(shadow), &pod); err != nil {
				return err
			}
			condition = podCondition(&pod, brokeringv1alpha1.ConditionAssigned)
			if condition == nil || condition.Reason != brokeringv1alpha1.ReasonBeyondGrant {
				return fmt.Errorf("pod %s has the condition %+v", pod.Name, condition)
			}
			return nil
		})
	}

	// It requests nothing any more, and all pods run again.
	require.NoError(t, owner.Client.Delete(t.Context(), c.atConsumer(t, owner, "own")))
	for _, shadow := range shadows {
		eventually(t, patient, func(ctx context.Context) error { return c.assignedNow(ctx, shadow, time.Time{}) })
		require.NoError(t, c.broker.Client.Delete(t.Context(), shadow))
	}
}

// assignedNow returns nil if the pod of a ShadowPod runs at a provider, and was created before the second of a time; the
// zero time is not compared.
func (c *chain) assignedNow(ctx context.Context, shadow *offloadingv1beta1.ShadowPod, now time.Time) error {
	var pod corev1.Pod
	if err := c.broker.Client.Get(ctx, client.ObjectKeyFromObject(shadow), &pod); err != nil {
		return err
	}
	switch {
	case pod.Labels[brokeringv1alpha1.VirtualNodeLabel] == "" || pod.Status.Phase != corev1.PodRunning:
		condition := podCondition(&pod, brokeringv1alpha1.ConditionAssigned)
		return fmt.Errorf("pod %s is %s, condition %+v", pod.Name, pod.Status.Phase, condition)
	case !now.IsZero() && !pod.CreationTimestamp.Time.Before(now):
		return errors.New("the next pod would be of the same second")
	}
	return nil
}

// consumerHas returns nil if the status of a ConsumerCluster is as expected.
func (c *chain) consumerHas(ctx context.Context, of *sandbox.Cluster, expected func(*brokeringv1alpha1.ConsumerClusterStatus) bool) error {
	var consumer brokeringv1alpha1.ConsumerCluster
	if err := c.broker.Client.Get(ctx, client.ObjectKey{Name: of.Name}, &consumer); err != nil {
		return err
	}
	if !expected(&consumer.Status) {
		return fmt.Errorf("ConsumerCluster %s has the status %+v", of.Name, consumer.Status)
	}
	return nil
}
