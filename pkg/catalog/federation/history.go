package federation

import (
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
)

// history are the last samples of a provider.
type history struct {
	since   time.Time
	samples []api.Sample
	// oldest is where the next sample goes, once there are as many as are kept.
	oldest int
}

func (h *history) add(s api.Sample, keep int) {
	if len(h.samples) < keep {
		h.samples = append(h.samples, s)
		return
	}
	h.samples[h.oldest] = s
	h.oldest = (h.oldest + 1) % keep
}

// all returns the samples, the oldest first.
func (h *history) all() []api.Sample {
	all := make([]api.Sample, 0, len(h.samples))
	return append(append(all, h.samples[h.oldest:]...), h.samples[:h.oldest]...)
}
