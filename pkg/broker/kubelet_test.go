package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

func TestAPlaceNeedsAConnectionAndANamespace(t *testing.T) {
	known := state.New(state.Config{Clock: clock.RealClock{}})
	providers := kubeletProviders{state: known, connections: remote.NewConnections(nil, nil, "")}
	at := scheduler.Place{Provider: "q", VirtualNode: "q1"}
	_, ok := providers.Place(at, "ns")
	require.False(t, ok)
	config := &rest.Config{}
	providers.connections.Set(&remote.Connection{Provider: "q", VirtualNode: "q1", Config: config})
	_, ok = providers.Place(at, "ns")
	require.False(t, ok)
	known.SetProvider("q", state.ProviderSpec{
		VirtualNodes: map[string]bool{"q1": false}, RemoteNamespaces: map[string]string{"ns": "ns-broker"},
	}, &v1alpha1.ProviderClusterStatus{})
	found, ok := providers.Place(at, "ns")
	require.True(t, ok)
	require.Equal(t, "ns-broker", found.Namespace)
	require.Same(t, config, found.Config)
	_, ok = providers.Place(at, "elsewhere")
	require.False(t, ok)
}
