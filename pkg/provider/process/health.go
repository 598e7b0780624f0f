package process

import (
	"fmt"
	"net/http"
	"sync/atomic"
)

// Phase is how far a virtual kubelet has come.
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

// ready reports whether the replica works as it should. A standby is ready: if it were not, a rolling update would wait
// for the new replica while the old one, which holds the lease, waits to be replaced.
func (p Phase) ready() bool { return p == Standby || p == Serving }

// Health is the state behind the probes.
type Health struct{ phase atomic.Int32 }

// Set sets the phase.
func (h *Health) Set(p Phase) { h.phase.Store(int32(p)) }

// Current returns the phase.
func (h *Health) Current() Phase { return Phase(h.phase.Load()) }

// Handler serves /livez and its old name /healthz, which succeed as long as the process answers, and /readyz. A virtual
// kubelet that can't go on exits, so there is nothing more for a liveness probe to find.
func (h *Health) Handler() http.Handler {
	mux := http.NewServeMux()
	alive := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
	mux.HandleFunc("GET /livez", alive)
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		now := h.Current()
		if !now.ready() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, now)
	})
	return mux
}
