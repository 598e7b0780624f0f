package proxy

import (
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
)

// Consumers have pods at twenty providers each, and open as many streams as they may, one consumer after the other.
func TestConsumersLeaveRoomForOthers(t *testing.T) {
	const consumers = 6
	var namespaces []client.Object
	for i := range consumers {
		namespaces = append(namespaces, namespace(fmt.Sprint("ns-", i), fmt.Sprint("consumer", i)))
	}
	s := newServer(Config{Log: logr.Discard(), Reader: fake.NewClientBuilder().WithObjects(namespaces...).Build()}, answerWithin)
	all, releases := 0, map[int][]func(){}
	for i := range consumers {
		for provider := range 20 {
			for release, err := s.take(t.Context(), fmt.Sprint("p", provider), fmt.Sprint("ns-", i)); err == nil; {
				releases[i] = append(releases[i], release)
				release, err = s.take(t.Context(), fmt.Sprint("p", provider), fmt.Sprint("ns-", i))
			}
		}
		assert.LessOrEqual(t, len(releases[i]), ofAll/2, "consumer %d", i)
		assert.GreaterOrEqual(t, len(releases[i]), ofAll>>(i+1)-1, "consumer %d: half of what is left", i)
		all += len(releases[i])
	}
	require.Less(t, all, ofAll)
	require.Less(t, ofAll, kubeletapi.OfCaller, "lists, usage and metrics are asked for meanwhile")

	_, err := s.take(t.Context(), "p19", "ns-0")
	require.ErrorContains(t, err, `too many requests at once for pods of the consumer "consumer0" (at most as many as are free of 392 `)
	for _, release := range releases[0] {
		release()
	}
	_, err = s.take(t.Context(), "p19", "ns-1")
	require.NoError(t, err, "a slot is free again")
}
