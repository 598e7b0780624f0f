package middleware

import (
	"net/http"
	"slices"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/problem"
)

// Plain answers what comes without TLS: what anonymous callers may read, by next. A request with credentials, and one that
// writes, is refused with the address to send it to, and the credentials are not read. Pages of the dashboard are
// redirected there: a page with a sign-in must have come with TLS. writes names the requests that write by GET, api those
// that are not for a page.
func Plain(next http.Handler, writes, api func(*http.Request) bool) http.Handler {
	return Secured(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target := "https://" + r.Host + r.URL.RequestURI()
		switch {
		case slices.ContainsFunc(r.Header.Values("Authorization"), func(value string) bool { return value != "" }):
			refuseInPlain(w, "credentials are not accepted over plain HTTP, where others can read them: replace them, and use "+target)
		case r.Method != http.MethodGet && r.Method != http.MethodHead, writes(r):
			refuseInPlain(w, "nothing is written over plain HTTP: use "+target)
		case !api(r):
			http.Redirect(w, r, target, http.StatusTemporaryRedirect) //nolint:gosec // To the host that the client asked.
		default:
			next.ServeHTTP(w, r)
		}
	}))
}

// refuseInPlain ends the connection as well: what the client sends next is likely to be refused, too.
func refuseInPlain(w http.ResponseWriter, why string) {
	w.Header().Set("Connection", "close")
	problem.New(http.StatusForbidden, why).Write(w)
}
