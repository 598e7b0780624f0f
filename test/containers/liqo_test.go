package containers

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// testProbedPorts runs the Deployment of a virtual kubelet with the readiness probe that liqo-controller-manager writes
// since Liqo v1.3.0, at three ports, one after the other. A Deployment of another name is used, because the controller of
// v1.2.0 restores its own.
func testProbedPorts(t *testing.T, f *federation) {
	var made appsv1.Deployment
	key := client.ObjectKey{Namespace: "liqo-tenant-provider1", Name: "vk-provider1"}
	require.NoError(t, f.broker.Client.Get(t.Context(), key, &made))
	probed := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "probed"}, Spec: *made.Spec.DeepCopy()}
	labels := map[string]string{"app": "probed"}
	probed.Spec.Selector, probed.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: labels}, labels
	probed.Spec.Strategy = appsv1.DeploymentStrategy{
		Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: ptr.To(intstr.FromInt(1)), MaxUnavailable: ptr.To(intstr.FromInt(0)),
		},
	}
	readyAt := func(port int) {
		probed.Spec.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt(port)}},
			PeriodSeconds: 1,
		}
	}
	rolledOut := func(ctx context.Context) error {
		if err := f.broker.Client.Get(ctx, client.ObjectKeyFromObject(probed), probed); err != nil {
			return err
		}
		s := &probed.Status
		if s.ObservedGeneration != probed.Generation || s.UpdatedReplicas != 1 || s.AvailableReplicas != 1 || s.Replicas != 1 {
			return fmt.Errorf("generation %d: %+v", probed.Generation, s)
		}
		return nil
	}
	readyAt(8081) // It is served anyway.
	require.NoError(t, f.broker.Client.Create(t.Context(), probed))
	t.Cleanup(func() { require.NoError(t, f.broker.Client.Delete(context.WithoutCancel(t.Context()), probed)) })
	eventually(t, rolledOut)
	for _, port := range []int{8088, 18080} {
		before := probed.DeepCopy()
		readyAt(port)
		require.NoError(t, f.broker.Client.Patch(t.Context(), probed, client.MergeFrom(before)))
		eventually(t, rolledOut)
	}
}
