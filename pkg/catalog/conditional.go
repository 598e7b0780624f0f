package catalog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// maxKept is up to what size, in bytes, the memory of an answer is used again.
const maxKept = 1 << 20

// buffered keeps an answer until all of it is there.
type buffered struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (b *buffered) WriteHeader(status int) {
	if b.status == 0 {
		b.status = status
	}
}

// Write implements http.ResponseWriter.
func (b *buffered) Write(data []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	return b.body.Write(data)
}

// Unwrap is for http.ResponseController.
func (b *buffered) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// conditional gives every answer to a GET a tag of its content, and leaves the content out when the client has it. The tag
// is a weak one, because the same content may be compressed or not.
func conditional(next http.Handler) http.Handler {
	answers := sync.Pool{New: func() any { return &buffered{} }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, _ := answers.Get().(*buffered)
		answer.ResponseWriter, answer.status = w, 0
		answer.body.Reset()
		defer func() {
			answer.ResponseWriter = nil
			if answer.body.Cap() <= maxKept {
				answers.Put(answer)
			}
		}()
		next.ServeHTTP(answer, r)

		status := answer.status
		if status == 0 {
			status = http.StatusOK
		}
		if status == http.StatusOK && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			sum := sha256.Sum256(answer.body.Bytes())
			tag := `W/"` + hex.EncodeToString(sum[:16]) + `"`
			w.Header().Set("ETag", tag)
			if hasTag(r.Header.Values("If-None-Match"), tag) {
				w.Header().Del("Content-Type")
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
		w.Header().Set("Content-Length", strconv.Itoa(answer.body.Len()))
		w.WriteHeader(status)
		_, _ = w.Write(answer.body.Bytes()) // Whoever has gone needs no answer.
	})
}

// hasTag says whether a client has what a weak tag is of (RFC 9110, 13.1.2: the comparison is the weak one).
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
