package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/belief"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
)

func TestAPlaceNeedsAConnectionAndANamespace(t *testing.T) {
	known := belief.New(belief.Config{})
	providers := kubeletProviders{belief: known, connections: remote.NewConnections(nil, nil, "")}
	_, ok := providers.Place("q1", "ns")
	require.False(t, ok)
	config := &rest.Config{}
	providers.connections.Set(&remote.Connection{VirtualNode: "q1", Config: config})
	_, ok = providers.Place("q1", "ns")
	require.False(t, ok)
	known.SetProvider("q", belief.ProviderSpec{
		VirtualNodes: map[string]bool{"q1": false}, RemoteNamespaces: map[string]string{"ns": "ns-broker"},
	}, &v1alpha1.ProviderClusterStatus{})
	at, ok := providers.Place("q1", "ns")
	require.True(t, ok)
	require.Equal(t, "ns-broker", at.Namespace)
	require.Same(t, config, at.Config)
	_, ok = providers.Place("q1", "elsewhere")
	require.False(t, ok)
}
