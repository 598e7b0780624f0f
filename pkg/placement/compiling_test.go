package placement

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

func TestAnOwnerWhoseFiltersTakeLongToCompileDelaysItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCompiling(clock.RealClock{})
		for range 40 {
			require.True(t, c.allowed("c1"))
			c.charge("c1", 50*time.Millisecond)
		}
		require.False(t, c.allowed("c1"))
		require.True(t, c.allowed("c2"))
		began, compiled := time.Now(), time.Duration(0)
		for time.Since(began) < 10*time.Minute {
			if c.allowed("c1") {
				c.charge("c1", 50*time.Millisecond)
				compiled += 50 * time.Millisecond
			}
			time.Sleep(50 * time.Millisecond)
		}
		require.InDelta(t, time.Minute, compiled, float64(time.Second), "it has a tenth of the time")
		time.Sleep(time.Hour)
		for i := range 2 * maxOwners {
			c.charge(fmt.Sprint(i), time.Millisecond)
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, len(c.used), maxOwners+1)
	})
}

// Neither pods with a filter in the cache wait, nor pods that must leave their provider.
func TestADeferredFilterLeavesTheRules(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	p := Policies{
		Client: fake.NewClientBuilder().WithScheme(scheme).Build(), Programs: cel.NewCache(1 << 20),
		Defaults: Rules{Failover: v1alpha1.FailoverMove}, Compiling: NewCompiling(clock.RealClock{}),
	}
	of := func(consumer, filter string) (Criteria, error) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "ns-" + consumer, Labels: map[string]string{"liqo.io/remote-cluster-id": consumer},
			Annotations: map[string]string{"liqo.io/managed-by-namespace-map": "liqo-tenant/" + consumer},
		}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace.Name, Annotations: map[string]string{v1alpha1.FilterAnnotation: filter},
		}}
		return p.CriteriaOf(t.Context(), pod, namespace)
	}
	_, err = of("c1", "provider.id == 'known'")
	require.NoError(t, err)
	_, err = of("c1", "not known")
	require.ErrorIs(t, err, ErrInvalid)
	p.Compiling.charge("c1", time.Hour)

	c, err := of("c1", "provider.id == 'new'")
	require.ErrorIs(t, err, ErrDeferred)
	require.ErrorIs(t, err, ErrInvalid)
	require.Equal(t, v1alpha1.FailoverMove, c.Rules.Failover)
	c, err = of("c1", "not known")
	require.ErrorIs(t, err, ErrInvalid)
	require.NotErrorIs(t, err, ErrDeferred, "it was refused before")
	require.Equal(t, v1alpha1.FailoverNever, c.Rules.Failover)
	_, err = of("c1", "provider.id == 'known'")
	require.NoError(t, err)
	_, err = of("c2", "provider.id == 'other'")
	require.NoError(t, err)
}
