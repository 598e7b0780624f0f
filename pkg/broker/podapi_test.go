package broker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

func TestWhereAPodIsLookedFor(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	assigned, waiting := cpuPod("assigned", "1"), cpuPod("waiting", "1")
	waiting.Labels = nil
	b := &Broker{
		cfg: Config{NodeName: "broker"}, core: oneProvider(), connections: newConnections(nil, nil, time.Second, ""),
		client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(assigned, waiting).Build(),
	}
	pods := podAPI{broker: b}

	_, err = pods.find(t.Context(), "ns", "stranger")
	require.True(t, errdefs.IsNotFound(err), err)
	_, err = pods.find(t.Context(), "ns", "waiting")
	require.True(t, errdefs.IsInvalidInput(err), err)
	_, err = pods.find(t.Context(), "ns", "assigned")
	require.ErrorContains(t, err, "VirtualNode q1 is not connected")

	b.connections.byVirtualNode["q1"] = &connection{virtualNode: "q1"}
	b.core.providers["q"].remoteNamespaces = map[string]string{"ns": "ns-broker"}
	at, err := pods.find(t.Context(), "ns", "assigned")
	require.NoError(t, err)
	require.Equal(t, "ns-broker", at.namespace)
	require.Equal(t, assigned.Labels[v1alpha1.VirtualNodeLabel], at.virtualNode)
}
