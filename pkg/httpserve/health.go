package httpserve

import (
	"context"
	"fmt"
	"net/http"
)

// HealthPaths returns the paths of HealthHandler.
func HealthPaths() []string { return []string{"/livez", "/healthz", "/readyz"} }

// HealthHandler serves the probes of a process: /livez and its old name /healthz succeed as long as it answers. /readyz
// answers with the state that ready returns, or 503 Service Unavailable with the error.
func HealthHandler(ready func(context.Context) (state string, err error)) http.Handler {
	mux := http.NewServeMux()
	alive := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
	mux.HandleFunc("GET /livez", alive)
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		state, err := ready(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, state)
	})
	return mux
}
