package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/test/chaos"
)

// chaos injects faults of all important kinds at once while pods are created and deleted, and judges the result with
// the judge of the histories in virtual time.
func (b *brokered) chaos(t *testing.T) {
	b.withoutGPUs(t)
	times := chaos.Tolerance()
	times.ProbeInterval, times.ProbeTimeout, times.FailoverAfter = time.Second, time.Second, failoverAfter
	times.PendingTimeout = 2 * time.Minute // The default of the policies.
	const name = "chaos"
	t.Cleanup(func() {
		if t.Failed() {
			b.remove(t, name)
		}
	})
	federation := &chaos.Federation{Sandbox: b.Sandbox, Node: brokerNode, Times: times}
	result, err := federation.Happen(t.Context(), chaos.Short(name), t.Output())
	require.NoError(t, err)
	t.Log(result)
	assert.False(t, result.Violated(), "see the violations above")
	assert.Greater(t, result.Pods, 30)
}

// withoutGPUs deletes the second slice of provider1: the judge expects one slice per provider.
func (b *brokered) withoutGPUs(t *testing.T) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: "liqo-tenant-provider1", Name: gpuSlice}
	slice, virtualNode := &authv1beta1.ResourceSlice{ObjectMeta: meta}, &offloadingv1beta1.VirtualNode{ObjectMeta: meta}
	for _, o := range []client.Object{slice, virtualNode} {
		require.NoError(t, client.IgnoreNotFound(b.broker.Client.Delete(t.Context(), o)))
	}
	eventually(t, patient, func(ctx context.Context) error {
		for _, o := range []client.Object{slice, virtualNode} {
			if err := stillThere(b.broker.Client.Get(ctx, client.ObjectKeyFromObject(o), o)); err != nil {
				return fmt.Errorf("%T: %w", o, err)
			}
		}
		return nil
	})
}
