package plugin

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestServerClock(t *testing.T) {
	now := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		date  string
		ahead time.Duration
		known bool
	}{
		"ahead":         {"Mon, 02 Nov 2026 12:01:00 GMT", time.Minute, true},
		"behind":        {"Mon, 02 Nov 2026 11:59:00 GMT", -time.Minute, true},
		"equal":         {"Mon, 02 Nov 2026 12:00:00 GMT", 0, true},
		"not a date":    {"yesterday", 0, false},
		"without dates": {"", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Date"] = []string{tc.date} // net/http sets no other one then.
			}))
			defer server.Close()
			clock := &serverClock{now: func() time.Time { return now }}
			_, known := clock.ahead()
			require.False(t, known, "before the first answer")
			response, err := (&http.Client{Transport: clock.wrap(http.DefaultTransport)}).Get(server.URL)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			ahead, known := clock.ahead()
			require.Equal(t, tc.known, known)
			require.InDelta(t, tc.ahead, ahead, float64(time.Second))
			response, err = (&http.Client{Transport: clock.wrap(http.DefaultTransport)}).Get("http://127.0.0.1:1")
			require.Error(t, err, "%v", response)
			_, known = clock.ahead()
			require.Equal(t, tc.known, known, "a request without an answer changes nothing")
		})
	}
}
