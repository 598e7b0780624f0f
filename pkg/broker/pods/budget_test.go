package pods

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func TestNewPodsOfAConsumerWaitForItsBudget(t *testing.T) {
	moving := newPodOf("a", "moving", "100m")
	moving.Annotations = map[string]string{v1alpha1.AssignedAtAnnotation: noon.Format("2006-01-02T15:04:05Z07:00")}
	c := newBounded(t, interceptor.Funcs{}, append(tenantOf("1500m"), newPodOf("a", "one", "100m"), moving)...)
	c.leadsSince(t, noon)
	over := "pods of consumer c1 have cost 100"
	c.OverBudget = func(_ context.Context, consumer string) string {
		require.Equal(t, "c1", consumer)
		return over
	}
	require.Empty(t, c.assigned(t, "one"))
	require.Equal(t, v1alpha1.ReasonBudgetUsed, c.reported(t, "one").Reason)
	require.Equal(t, over, c.reported(t, "one").Message)
	require.Equal(t, "q1", c.assigned(t, "moving"), "it was assigned before")
	over = ""
	require.Equal(t, "q1", c.assigned(t, "one"))
}
