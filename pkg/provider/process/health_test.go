package process

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func get(handler http.Handler, path string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return recorder
}

func TestProbes(t *testing.T) {
	for phase, ready := range map[Phase]int{Starting: 503, Standby: 200, Connecting: 503, Serving: 200} {
		state := &Health{}
		state.Set(phase)
		require.Equal(t, ready, get(state.Handler(), "/readyz").Code, phase)
		require.Contains(t, get(state.Handler(), "/readyz").Body.String(), phase.String())
		require.Equal(t, 200, get(state.Handler(), "/livez").Code, phase)
		require.Equal(t, 200, get(state.Handler(), "/healthz").Code, phase)
	}
}
