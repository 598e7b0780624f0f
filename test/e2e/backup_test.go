package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// backup restores the broker's cluster from a snapshot of its etcd. Since the snapshot, pods of that cluster and of a
// consumer were created, deleted and moved. After the restore the broker's cluster has the pods of the snapshot, and,
// for the consumer, the pods that exist in the consumer. Each pod runs once, at the provider in its label. Pods that
// were not touched are not restarted.
func (c *chain) backup(t *testing.T) {
	const patient = 3 * time.Minute
	ns, consumer := c.namespace(t), c.consumers[0]
	shop := c.offload(t, consumer)
	c.create(t, ns, "stays", 5, only("provider3"))
	c.create(t, ns, "moves", 5, annotated(brokeringv1alpha1.FilterAnnotation, "provider.id in ['provider1', 'provider2']"))
	c.create(t, ns, "deleted", 3, nil)
	c.pod(t, consumer, shop, "stays", "provider.id == 'provider3'")
	c.pod(t, consumer, shop, "deleted", "true")
	eventually(t, patient, func(ctx context.Context) error { return c.settled(ctx, ns, 13) })
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, shop, 2) })
	places := c.count(t, ns, brokeringv1alpha1.ProviderLabel)
	stays := c.stays(t, ns, consumer.RemoteNamespace(shop))

	file := filepath.Join(t.TempDir(), "snapshot.db")
	require.NoError(t, c.broker.Backup(t.Context(), file))

	c.restore(t, "provider1")
	c.decide(t, "provider1", func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = true })
	for i := range 3 {
		require.NoError(t, c.broker.Client.Delete(t.Context(), newPod(ns, fmt.Sprintf("deleted-%d", i))))
	}
	require.NoError(t, consumer.Client.Delete(t.Context(), newPod(shop, "deleted")))
	c.create(t, ns, "later", 4, nil)
	c.pod(t, consumer, shop, "later", "true")
	eventually(t, patient, func(ctx context.Context) error { return c.emptied(ctx, ns, c.providers[0], 14) })
	eventually(t, patient, func(ctx context.Context) error { return c.settled(ctx, ns, 14) })
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, shop, 2) })

	require.NoError(t, c.Restore(t.Context(), sandbox.Broker, file))
	began := time.Now()
	eventually(t, patient, func(ctx context.Context) error { return c.settled(ctx, ns, 13) })
	eventually(t, patient, func(ctx context.Context) error { return c.settled(ctx, consumer.RemoteNamespace(shop), 2) })
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, shop, 2) })
	t.Logf("all as it should be %s after the restored cluster was ready", time.Since(began).Round(time.Second))
	assert.Equal(t, places, c.count(t, ns, brokeringv1alpha1.ProviderLabel), "the drain is not in the backup")
	assert.Equal(t, stays, c.stays(t, ns, consumer.RemoteNamespace(shop)), "no pod that stayed was started again")
}

// stays returns the pods at provider3 that no scenario of a backup touches.
func (c *chain) stays(t *testing.T, namespaces ...string) map[string]types.UID {
	t.Helper()
	out := map[string]types.UID{}
	for _, namespace := range namespaces {
		there := uids(t, c.providers[2], c.broker.RemoteNamespace(namespace))
		for _, name := range []string{"stays", "stays-0", "stays-1", "stays-2", "stays-3", "stays-4"} {
			if uid, ok := there[name]; ok {
				out[namespace+"/"+name] = uid
			}
		}
	}
	require.Len(t, out, 6)
	return out
}
