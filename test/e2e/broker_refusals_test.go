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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// rejected makes a provider reject the identity of the broker, as after its CA was rotated. No pod fails over, because
// the pods there could not be ended, and new pods go to other providers.
func (b *brokered) rejected(t *testing.T) {
	ns := b.namespace(t)
	b.create(t, ns, "web", 12, nil)
	b.create(t, ns, "loyal", 1, only("provider2"))
	b.settle(t, ns, 13)
	there := b.count(t, ns, brokeringv1alpha1.ProviderLabel)["provider2"]
	require.Greater(t, there, 1)
	before, err := b.identities(t.Context(), ns)
	require.NoError(t, err)
	assigned, err := b.assignments(t.Context(), ns)
	require.NoError(t, err)

	accept, err := b.Reject(t.Context(), "provider2")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			_ = accept(context.Background())
		}
	})
	eventually(t, patient, func(ctx context.Context) error {
		c, err := b.reachability(ctx, "provider2")
		if err == nil && (c == nil || c.Status != metav1.ConditionUnknown || c.Reason != brokeringv1alpha1.ReasonRejects) {
			err = fmt.Errorf("provider2: condition %+v", c)
		}
		return err
	})
	b.create(t, ns, "new", 6, nil)
	b.create(t, ns, "patient", 1, only("provider2"))
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "new-5", "") })
	assert.Equal(t, there, b.count(t, ns, brokeringv1alpha1.ProviderLabel)["provider2"],
		"new pods went to a provider that rejects the broker")
	b.explained(t, ns, "patient-0", "NoProviderFits", "no provider cluster fits", "not ready")
	throughout(t, failoverAfter+8*time.Second, func(ctx context.Context) error {
		now, err := b.assignments(ctx, ns)
		if err == nil {
			err = changed(assigned, now)
		}
		return err
	})

	require.NoError(t, accept(t.Context()))
	eventually(t, patient, func(ctx context.Context) error { return b.reachable(ctx, "provider2", metav1.ConditionTrue) })
	b.settle(t, ns, 20)
	after, err := b.identities(t.Context(), ns)
	require.NoError(t, err)
	require.NoError(t, changed(before, after))
}

// nodeDeleted deletes the broker's Node after an administrator has cordoned, tainted and labelled it.
func (b *brokered) nodeDeleted(t *testing.T) {
	ns := b.namespace(t)
	b.create(t, ns, "web", 6, nil)
	b.settle(t, ns, 6)
	before, err := b.identities(t.Context(), ns)
	require.NoError(t, err)
	patch := func(ctx context.Context, text string) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: brokerNode}}
		require.NoError(t, b.broker.Client.Patch(ctx, node, client.RawPatch(types.JSONPatchType, []byte(text))))
	}
	const taint = "example.com/maintenance"
	patch(t.Context(), `[{"op":"add","path":"/spec/unschedulable","value":true},
		{"op":"add","path":"/spec/taints/-","value":{"key":"`+taint+`","effect":"PreferNoSchedule"}},
		{"op":"add","path":"/metadata/labels/example.com~1team","value":"a"}]`)
	var was corev1.Node
	require.NoError(t, b.broker.Client.Get(t.Context(), client.ObjectKey{Name: brokerNode}, &was))
	require.Equal(t, taint, was.Spec.Taints[len(was.Spec.Taints)-1].Key)
	t.Cleanup(func() {
		patch(context.Background(), `[{"op":"replace","path":"/spec/unschedulable","value":false},
			{"op":"remove","path":"/metadata/labels/example.com~1team"}]`)
		var node corev1.Node
		require.NoError(t, b.broker.Client.Get(context.Background(), client.ObjectKey{Name: brokerNode}, &node))
		for i := range node.Spec.Taints {
			if node.Spec.Taints[i].Key == taint {
				patch(context.Background(), fmt.Sprintf(`[{"op":"remove","path":"/spec/taints/%d"}]`, i))
			}
		}
	})
	// The broker saves these changes to a ConfigMap a moment later.
	eventually(t, 20*time.Second, func(ctx context.Context) error {
		memories, err := b.broker.Kube.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx,
			metav1.ListOptions{FieldSelector: "metadata.name=liqo-broker-node"})
		if err == nil && (len(memories.Items) != 1 || !strings.Contains(memories.Items[0].Data["node.json"], taint)) {
			err = fmt.Errorf("the Node is not remembered: %+v", memories.Items)
		}
		return err
	})

	require.NoError(t, b.broker.Client.Delete(t.Context(), &was))
	began := time.Now()
	var node corev1.Node
	eventually(t, 15*time.Second, func(ctx context.Context) error {
		err := b.broker.Client.Get(ctx, client.ObjectKey{Name: brokerNode}, &node)
		if err == nil && node.UID == was.UID {
			err = fmt.Errorf("it is the Node that was deleted")
		}
		return err
	})
	t.Logf("made again after %s", time.Since(began).Round(100*time.Millisecond))
	assert.True(t, node.Spec.Unschedulable, "it is cordoned")
	assert.Equal(t, "a", node.Labels["example.com/team"])
	keys := map[string]bool{}
	for i := range node.Spec.Taints {
		keys[node.Spec.Taints[i].Key] = true
	}
	for i := range was.Spec.Taints {
		assert.True(t, keys[was.Spec.Taints[i].Key], "taint %s", was.Spec.Taints[i].Key)
	}
	b.settle(t, ns, 6)
	after, err := b.identities(t.Context(), ns)
	require.NoError(t, err)
	require.NoError(t, changed(before, after))
}
