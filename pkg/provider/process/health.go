package process

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
)

// Phase is the start-up phase of a virtual kubelet.
type Phase int32

// The phases. A standby waits for the lease of the node.
const (
	Starting Phase = iota
	Standby
	Connecting
	Serving
)

func (p Phase) String() string {
	return [...]string{"starting", "standby", "connecting", "serving"}[p]
}

// ready reports whether the replica works as it should. A standby is ready. Otherwise a rolling update would hang: it
// would wait for the new replica, while the old one keeps the lease until it is replaced.
func (p Phase) ready() bool { return p == Standby || p == Serving }

// Health is the state behind the probes.
type Health struct{ phase atomic.Int32 }

// Set sets the phase.
func (h *Health) Set(p Phase) { h.phase.Store(int32(p)) }

// Current returns the phase.
func (h *Health) Current() Phase { return Phase(h.phase.Load()) }

// Handler serves /livez and its old name /healthz, which succeed as long as the process answers, and /readyz. A virtual
// kubelet that cannot continue exits, so a liveness probe has nothing more to detect.
func (h *Health) Handler() http.Handler {
	return httpserve.HealthHandler(func(context.Context) (string, error) {
		now := h.Current()
		if !now.ready() {
			return "", errors.New(now.String())
		}
		return now.String(), nil
	})
}
