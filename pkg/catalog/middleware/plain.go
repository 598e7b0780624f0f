package middleware

import (
	"net/http"
	"slices"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/problem"
)

// Plain answers requests without TLS by next, if anonymous callers may read the answer. A request with credentials, and
// a request that writes, is rejected with the address to send it to, and the credentials are not read. Pages of the
// dashboard are redirected there: a page with a sign-in must be loaded with TLS. writes reports requests that write by
// GET, api reports requests that are not for a page.
func Plain(next http.Handler, writes, api func(*http.Request) bool) http.Handler {
	return Secured(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target := "https://" + r.Host + r.URL.RequestURI()
		switch {
		case slices.ContainsFunc(r.Header.Values("Authorization"), func(value string) bool { return value != "" }):
			refuseInPlain(w, "credentials are not accepted over plain HTTP, where others can read them: rotate them, and use "+target)
		case r.Method != http.MethodGet && r.Method != http.MethodHead, writes(r):
			refuseInPlain(w, "writes are not accepted over plain HTTP: use "+target)
		case !api(r):
			http.Redirect(w, r, target, http.StatusTemporaryRedirect) //nolint:gosec // To the host that the client asked.
		default:
			next.ServeHTTP(w, r)
		}
	}))
}

// refuseInPlain also closes the connection: the client's next requests are likely to be rejected, too.
func refuseInPlain(w http.ResponseWriter, why string) {
	w.Header().Set("Connection", "close")
	problem.New(http.StatusForbidden, why).Write(w)
}
