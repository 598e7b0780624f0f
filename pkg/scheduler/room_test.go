package scheduler

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

func TestRoomIsWhatASliceHasFree(t *testing.T) {
	s := stateOf(ready("q"), ready("r", func(p *Provider) { p.Enabled = false }))
	early := s.Demand(resources.Amounts{gpu: 1})
	s.Assign(Assignment{UID: "one", Place: Place{"q", "q"}, Requests: resources.Amounts{corev1.ResourceCPU: 5000, corev1.ResourcePods: 1}})
	require.Equal(t, Place{"q", "q"}, s.PlaceOf(HolderOf("one")))
	require.Empty(t, s.PlaceOf(HolderOf("other")))
	for _, unusable := range []Place{{"r", "r"}, {"q", "other"}, {"other", "q"}} {
		_, usable := s.Room(unusable, "")
		require.False(t, usable, unusable)
	}
	room, usable := s.Room(Place{"q", "q"}, "")
	require.True(t, usable)
	two := s.Demand(resources.Amounts{corev1.ResourceCPU: 2000, corev1.ResourcePods: 1})
	require.True(t, room.Fits(two), "of 8 CPUs, and any number of pods")
	room.Take(two)
	require.False(t, room.Fits(two))
	require.True(t, room.Fits(s.Demand(resources.Amounts{corev1.ResourceCPU: 1000})))
	require.False(t, room.Fits(early))
	room, _ = s.Room(Place{"q", "q"}, "")
	require.True(t, room.Fits(two), "it is a copy")

	s.SetProvider(ready("q", granted(gpuSliceOf("q", 8000, gi, 2))))
	room, _ = s.Room(Place{"q", "q"}, "")
	require.True(t, room.Fits(early), "the resource is known by now")
	room.Take(early)
	room.Take(early)
	require.False(t, room.Fits(early))
}
