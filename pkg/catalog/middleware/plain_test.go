package middleware

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A caller that sends a token over plain HTTP, anywhere in the request, is told that others can read it.
func TestCredentialsOverPlainHTTPAreRefused(t *testing.T) {
	no := func(*http.Request) bool { return false }
	yes := func(*http.Request) bool { return true }
	handler := Plain(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }), no, yes)
	for name, tc := range map[string]struct {
		authorization []string
		want          int
	}{
		"none":                       {nil, http.StatusOK},
		"an empty one":               {[]string{""}, http.StatusOK},
		"a token":                    {[]string{"Bearer x"}, http.StatusForbidden},
		"a token after an empty one": {[]string{"", "Bearer x"}, http.StatusForbidden},
		"a password":                 {[]string{"Basic eDp4"}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "http://catalog/api/clusters", nil)
			r.Header["Authorization"] = tc.authorization
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			require.Equal(t, tc.want, w.Code, w.Body)
		})
	}
}
