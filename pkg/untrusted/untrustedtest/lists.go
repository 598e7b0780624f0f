// Package untrustedtest has the answers of a hostile provider cluster, for tests of its clients.
package untrustedtest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// HugeQuantities is the name of the attack that is an error only to clients that read amounts.
const HugeQuantities = "quantities that take hours to read"

// Lists are answers to requests for lists, by a description. The API server of their provider is ready otherwise. Each
// is an error of the provider, except for HugeQuantities.
func Lists() map[string]http.HandlerFunc {
	attacks := map[string]http.HandlerFunc{
		"forty million empty objects": repeated(`{}`, `,{}`, 40_000_000, `]}`),
		"objects without end":         repeated(`{}`, `,{"metadata":{"name":"x"}}`, 1<<30, ``),
		"an object of 100 MB":         repeated(`{"metadata":{"name":"`, `x`, 100<<20, `"}}]}`),
		"long names": repeated(`{}`, `,{"metadata":{"name":"pod","uid":"`+strings.Repeat("x", 2<<20)+
			`"}},{"metadata":{"name":"`+strings.Repeat("x", 2<<20)+`"}}`, 25, `]}`),
		"spaces without end":     repeated(``, ` `, 1<<30, ``),
		"deep lists":             repeated(`{"status":`, `[`, 3<<20, ``),
		"a list that is cut off": repeated(`{"metadata":{"name":"pod"}}`, ``, 0, ``),
		"wrong types": whole(http.StatusOK,
			`{"kind":["List"],"apiVersion":7,"metadata":"x","items":{"a":1},"status":[]}`),
		"a Status instead of a list":  whole(http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`),
		"an object instead of a list": whole(http.StatusOK, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod"}}`),
		"an error with a million causes": whole(http.StatusInternalServerError,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"details":{"causes":[{}`+
				strings.Repeat(",{}", 1_000_000)+`]}}`),
		"always one more chunk": chunk,
		"one byte at a time":    drip,
	}
	attacks[HugeQuantities] = whole(http.StatusOK, `{"items":[`+objectOf("1e-2000000000")+`,`+objectOf("1e2000000000")+`]}`)
	return attacks
}

// objectOf is a pod, a ShadowPod and a PodMetrics at once, whose amounts are the quantity.
func objectOf(quantity string) string {
	amounts := `{"cpu":"` + quantity + `","memory":"` + quantity + `"}`
	container := `{"name":"c","resources":{"requests":` + amounts + `},"allocatedResources":` + amounts + `,"usage":` + amounts + `}`
	return `{"metadata":{"name":"pod"},"spec":{"containers":[` + container + `],"pod":{"containers":[` + container + `]}},` +
		`"status":{"phase":"Running","containerStatuses":[` + container + `]},"containers":[` + container + `]}`
}

func whole(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// repeated answers with a list of items: the first text, then the next one so many times, then the end.
func repeated(first, next string, times int, end string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"items":[`+first)
		at := min(times, 1+(64<<10)/max(1, len(next)))
		block := strings.Repeat(next, at)
		for left := times; left > 0; left -= at {
			if _, err := io.WriteString(w, block[:len(next)*min(at, left)]); err != nil || r.Context().Err() != nil {
				return
			}
		}
		_, _ = io.WriteString(w, end)
	}
}

// chunk answers with pods that have a million conditions and containers, and with a token for the next chunk.
func chunk(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	many := `[{}` + strings.Repeat(`,{}`, 300_000) + `]`
	_, _ = fmt.Fprintf(w, `{"metadata":{"continue":"more"},"items":[{"metadata":{"name":"pod"},"containers":%s,"status":{`+
		`"phase":"Running","conditions":%s,"containerStatuses":%s,"initContainerStatuses":%s}}]}`, many, many, many, many)
}

func drip(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		_, _ = io.WriteString(w, " ")
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}
