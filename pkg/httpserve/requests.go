package httpserve

import (
	"context"
	"net/http"
	"time"
)

// AnswerTimeout is how long an answer may wait for a client that does not read it.
const AnswerTimeout = 10 * time.Second

// Requests limits the requests that are open. A connection may have many (HTTP/2), and a client that reads no answer keeps
// them open.
type Requests struct {
	open    *Shares // By host.
	refused func()
}

// NewRequests returns limits of requests: of each host so many, and as many as are free of a total. refused is called for
// each one too many if it is not nil.
func NewRequests(ofHost, total int, refused func()) *Requests {
	open := &Shares{may: func(open, all int) bool { return open < min(ofHost, total-all) }, open: map[string]int{}}
	return &Requests{open: open, refused: refused}
}

type requestKey struct{}

// Limit passes on the requests within the limits. One too many has no answer: its stream is reset, or its connection closed. An
// answer over HTTP/2 may have to wait for the client to read it, and a reset does not.
func (q *Requests) Limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		release, ok := q.open.Take(HostOf(r.RemoteAddr))
		if !ok {
			if q.refused != nil {
				q.refused()
			}
			panic(http.ErrAbortHandler)
		}
		defer release()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, release)))
	})
}

// Release makes a request that Limit has passed on count no more: it has a limit of another kind from now on.
func Release(r *http.Request) {
	if release, ok := r.Context().Value(requestKey{}).(func()); ok {
		release()
	}
}

// BoundAnswer sets a deadline for the answer that begins now. The deadline of a server is for the work on it, too.
func BoundAnswer(w http.ResponseWriter) {
	// A writer without deadlines is one of a test.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(AnswerTimeout))
}
