package middleware

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// MaxPooled is the size, in bytes, up to which the buffer of an answer, or of a stream, is reused.
const MaxPooled = 1 << 20

// buffered is an answer that is not written yet.
type buffered struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (b *buffered) WriteHeader(status int) {
	if b.status == 0 {
		b.status = status
	}
}

func (b *buffered) Write(data []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	return b.body.Write(data)
}

func (b *buffered) write(w http.ResponseWriter) {
	if b.status != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(b.body.Len()))
	}
	w.WriteHeader(cmp.Or(b.status, http.StatusOK))
	if _, err := w.Write(b.body.Bytes()); err != nil { // A client that has disconnected needs no answer.
		b.body = bytes.Buffer{} // Over HTTP/2 the server may still send from the old bytes.
	}
}

// Unwrap is for http.ResponseController.
func (b *buffered) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// Conditional sets an ETag of the content on every answer to a GET, and leaves out content that the client has. The
// ETag is weak, because the same content may be compressed or not.
func Conditional(next http.Handler) http.Handler {
	return buffer(next, func(w http.ResponseWriter, r *http.Request, answer *buffered) {
		if cmp.Or(answer.status, http.StatusOK) == http.StatusOK && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			sum := sha256.Sum256(answer.body.Bytes())
			tag := `W/"` + hex.EncodeToString(sum[:16]) + `"`
			w.Header().Set("ETag", tag)
			if hasTag(r.Header.Values("If-None-Match"), tag) {
				w.Header().Del("Content-Type")
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
		answer.write(w)
	})
}

// Buffered writes answers when they are complete, so that no resource for making an answer waits for its client.
func Buffered(next http.Handler) http.Handler {
	return buffer(next, func(w http.ResponseWriter, _ *http.Request, answer *buffered) { answer.write(w) })
}

// buffer passes the complete answers of next to write.
func buffer(next http.Handler, write func(w http.ResponseWriter, r *http.Request, answer *buffered)) http.Handler {
	answers := sync.Pool{New: func() any { return &buffered{} }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, _ := answers.Get().(*buffered)
		answer.ResponseWriter, answer.status = w, 0
		answer.body.Reset()
		defer func() {
			answer.ResponseWriter = nil
			if answer.body.Cap() <= MaxPooled {
				answers.Put(answer)
			}
		}()
		next.ServeHTTP(answer, r)
		write(w, r, answer)
	})
}

// hasTag reports whether a client has the content of a weak ETag (RFC 9110, 13.1.2: the comparison is the weak one).
func hasTag(lists []string, tag string) bool {
	opaque := strings.TrimPrefix(tag, "W/")
	for _, list := range lists {
		for candidate := range strings.SplitSeq(list, ",") {
			candidate = strings.TrimSpace(candidate)
			if candidate == "*" || strings.TrimPrefix(candidate, "W/") == opaque {
				return true
			}
		}
	}
	return false
}
