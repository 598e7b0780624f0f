package provider

import (
	"fmt"
	"net/http"
	"sync/atomic"
)

// phase is how far a virtual kubelet has come.
type phase int32

const (
	starting phase = iota
	standby
	connecting
	serving
)

func (p phase) String() string {
	return [...]string{"starting", "standby", "connecting", "serving"}[p]
}

// ready reports whether the replica works as it should. A standby is ready: if it were not, a rolling update would wait
// for the new replica while the old one, which holds the lease, waits to be replaced.
func (p phase) ready() bool { return p == standby || p == serving }

// health is the state behind the probes.
type health struct{ phase atomic.Int32 }

func (h *health) set(p phase)    { h.phase.Store(int32(p)) }
func (h *health) current() phase { return phase(h.phase.Load()) }

// handler serves /livez and its old name /healthz, which succeed as long as the process answers, and /readyz. A virtual
// kubelet that can't go on exits, so there is nothing more for a liveness probe to find.
func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	alive := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
	mux.HandleFunc("GET /livez", alive)
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		now := h.current()
		if !now.ready() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, now)
	})
	return mux
}
