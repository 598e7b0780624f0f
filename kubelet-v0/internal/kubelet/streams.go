package kubelet

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/remotecommand"
)

// knownProtocols hides the protocols of exec and attach that virtual-kubelet v1.10 does not know. virtual-kubelet
// agrees to the first protocol that the client asks for, and panics if that is v5.channel.k8s.io, which clients since
// Kubernetes v1.30 ask for first (createHTTPStreamStreams in internal/kubernetes/remotecommand). The connection is then
// left open without an answer, as with Liqo's virtual kubelet of v0.9.4. Over SPDY, v5 is the same as
// v4.channel.k8s.io.
func knownProtocols(next http.Handler) http.Handler {
	known := []string{
		remotecommand.StreamProtocolV4Name, remotecommand.StreamProtocolV3Name,
		remotecommand.StreamProtocolV2Name, remotecommand.StreamProtocolV1Name,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.Header.Values(httpstream.HeaderProtocolVersion)
		if len(asked) == 0 || !strings.HasPrefix(r.URL.Path, "/exec/") && !strings.HasPrefix(r.URL.Path, "/attach/") {
			next.ServeHTTP(w, r)
			return
		}
		var served []string
		for _, protocol := range strings.Split(strings.Join(asked, ","), ",") {
			if protocol = strings.TrimSpace(protocol); slices.Contains(known, protocol) {
				served = append(served, protocol)
			}
		}
		if len(served) == 0 {
			// httpstream.Handshake answers in the same way.
			w.Header()[http.CanonicalHeaderKey(httpstream.HeaderAcceptedProtocolVersions)] = known
			http.Error(w, fmt.Sprintf("unable to upgrade: client supports %q, server accepts %q", asked, known), http.StatusForbidden)
			return
		}
		r = r.Clone(r.Context())
		r.Header[http.CanonicalHeaderKey(httpstream.HeaderProtocolVersion)] = served
		next.ServeHTTP(w, r)
	})
}
