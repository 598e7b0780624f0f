package kubeletapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"

	"github.com/capacitorset/liqo-broker-vk/pkg/auth"
	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
)

// gate authenticates and authorises the caller of every route.
type gate struct {
	log    logr.Logger
	node   string
	remedy string
	local  kubernetes.Interface

	ca            auth.ClientCA
	authenticator authenticator.Request
	authorizer    authorizer
	// tokens limits the requests with a token of each host: every invented token causes a TokenReview.
	tokens *auth.Limiter
	// callers limits the open connections of each authorised caller, and requests its open requests: a connection may
	// have many requests (HTTP/2).
	callers  *httpserve.Callers
	requests *httpserve.Shares
}

const (
	// strangers is the maximum number of connections without an authorised request.
	strangers = 128
	// OfCaller is the maximum number of open connections, and of open requests, of each authorised caller. It is half
	// of the connections that are left of 1,024 without the strangers'. The API server is one caller for all users of
	// kubectl: with any other caller at its limit, it still has this many.
	OfCaller = 448
)

// refusalTimeout is the time that a rejected client has to read the answer.
const refusalTimeout = 10 * time.Second

// The limits of requests with a token from one host, and the number of hosts that are remembered.
const (
	tokensPerSecond = 20
	tokensBurst     = 100
	tokenHosts      = 1000
)

func newGate(cfg Config) (*gate, error) {
	ca, err := auth.NewClientCA(cfg.ClientCAFile, cfg.Local)
	if err != nil {
		return nil, err
	}
	g := &gate{
		log: cfg.Log, node: cfg.NodeName, remedy: cfg.Remedy, local: cfg.Local, ca: ca,
		authenticator: auth.NewAuthenticator(ca, cfg.Local, cfg.Remedy),
		authorizer:    auth.NewReviewer(cfg.Local, cfg.Remedy),
		tokens:        auth.NewLimiter(tokensPerSecond, tokensBurst, tokenHosts),
		callers:       httpserve.NewCallers(strangers, httpserve.NewShares(OfCaller)), requests: httpserve.NewShares(OfCaller),
	}
	if cfg.AuthorizationMode == AuthorizationAlwaysAllow {
		g.authorizer = alwaysAllow{}
	}
	return g, nil
}

// AuthorizationMode selects how an authenticated caller is authorised.
type AuthorizationMode string

// The values of --kubelet-authorization-mode.
const (
	// AuthorizationWebhook asks the API server (SubjectAccessReview).
	AuthorizationWebhook AuthorizationMode = "Webhook"
	// AuthorizationAlwaysAllow allows every authenticated caller everything.
	AuthorizationAlwaysAllow AuthorizationMode = "AlwaysAllow"
)

// authorizer reports whether a caller has one of the permissions.
type authorizer interface {
	Authorize(ctx context.Context, who user.Info, anyOf []authorizationv1.ResourceAttributes) (bool, error)
}

type alwaysAllow struct{}

func (alwaysAllow) Authorize(context.Context, user.Info, []authorizationv1.ResourceAttributes) (bool, error) {
	return true, nil
}

// GrantCommand returns the command of docs/virtual-kubelet.md for a virtual kubelet; the ClusterRole is in
// deploy/virtual-kubelet-auth.yaml. Liqo runs a virtual kubelet with a ServiceAccount that has the name of its
// VirtualNode (pkg/vkMachinery/forge). The command grants to this ServiceAccount only: a certificate of a peer may name
// the group of all ServiceAccounts of the namespace (docs/security.md).
func GrantCommand(tenantNamespace, virtualNode string) string {
	return fmt.Sprintf("kubectl create clusterrolebinding liqo-broker-vk-kubelet-auth-%[1]s-%[2]s "+
		"--clusterrole=liqo-broker-vk-kubelet-auth --serviceaccount=%[1]s:%[2]s", tenantNamespace, virtualNode)
}

// run watches the client CA until ctx ends. First, it logs an error if callers cannot be reviewed.
func (g *gate) run(ctx context.Context) error {
	g.checkPermissions(ctx)
	g.ca.Run(ctx, 1)
	return nil
}

// checkPermissions logs a missing ClusterRole at the start, instead of at the first kubectl logs.
func (g *gate) checkPermissions(ctx context.Context) {
	reviews := []authorizationv1.ResourceAttributes{{Group: "authentication.k8s.io", Resource: "tokenreviews", Verb: "create"}}
	if _, always := g.authorizer.(alwaysAllow); !always {
		reviews = append(reviews, authorizationv1.ResourceAttributes{
			Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Verb: "create",
		})
	}
	for _, review := range reviews {
		answer, err := g.local.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &review},
			}, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			g.log.Error(&auth.MissingPermissionError{Remedy: g.remedy},
				"Missing permission to review callers of the kubelet API, rejecting them (401 or 403)", "resource", review.Resource)
			return
		}
	}
}

// protect passes a request on if its caller is authenticated (else 401), authorised (else 403), and below its limits of
// open connections and requests (else 429). The ResponseWriter is passed on unchanged: the streams hijack the
// connection and flush.
func (g *gate) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" && g.tokens.Take(httpserve.HostOf(r.RemoteAddr), 1, time.Now()) > 0 {
			refuse(w, "Too many requests with a bearer token", http.StatusTooManyRequests)
			return
		}
		answer, ok, err := g.authenticator.AuthenticateRequest(r)
		if err != nil || !ok {
			g.log.V(1).Info("Unauthenticated request", "path", r.URL.Path, "from", r.RemoteAddr, "reason", cause(err))
			refuse(w, unauthorizedMessage(err), http.StatusUnauthorized)
			return
		}

		who, what := answer.User, requestAttributes(g.node, r)
		allowed, err := g.authorizer.Authorize(r.Context(), who, what)
		var missing *auth.MissingPermissionError
		switch {
		case errors.As(err, &missing):
			g.log.Error(err, "Rejected a request", "user", who.GetName(), "path", r.URL.Path)
			refuse(w, fmt.Sprintf("Forbidden (%s)", missing), http.StatusForbidden)
		case err != nil:
			g.log.Error(err, "Cannot authorise a request", "user", who.GetName(), "path", r.URL.Path)
			refuse(w, fmt.Sprintf("Authorization error (user=%s, %s)", who.GetName(), describe(what)), http.StatusInternalServerError)
		case !allowed:
			g.log.V(1).Info("Forbidden request", "user", who.GetName(), "path", r.URL.Path)
			refuse(w, fmt.Sprintf("Forbidden (user=%s, %s)", who.GetName(), describe(what)), http.StatusForbidden)
		default:
			g.serve(w, r, who.GetName(), next)
		}
	})
}

// serve passes on a request of an authorised caller, unless the caller has reached its limits.
func (g *gate) serve(w http.ResponseWriter, r *http.Request, caller string, next http.Handler) {
	release, ok := g.requests.Take(caller)
	if ok {
		defer release()
		ok = g.callers.CountFor(r.Context(), caller)
	}
	if !ok {
		g.log.V(1).Info("Too many requests", "user", caller, "path", r.URL.Path)
		w.Header().Set("Connection", "close") // The connection has been open too long already.
		refuse(w, fmt.Sprintf("Too many requests at once (user=%s, at most %d connections and requests)", caller, OfCaller),
			http.StatusTooManyRequests)
		return
	}
	next.ServeHTTP(w, r)
}

// refuse answers with an error. Over HTTP/2 a client can delay reading an answer, so the answer has a deadline. The
// server has no deadline for all requests, because that would end streams.
func refuse(w http.ResponseWriter, message string, code int) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(refusalTimeout)) // Only writers of tests have none.
	http.Error(w, message, code)
}

// cause is why a caller was not authenticated, for the log; nil is a caller without credentials.
func cause(err error) string {
	if err == nil {
		return "no credentials"
	}
	return err.Error()
}

// unauthorizedMessage, like every answer of protect, has no colon followed by a space. Otherwise client-go's SPDY
// executor would decode the text as a YAML Status without a message, and kubectl exec would show no message.
func unauthorizedMessage(err error) string {
	causes := []error{err}
	// The union of authenticators aggregates their errors in a type that errors.As cannot unwrap.
	if aggregate, ok := err.(utilerrors.Aggregate); ok { //nolint:errorlint // Only the outermost is one.
		causes = aggregate.Errors()
	}
	for _, cause := range causes {
		var missing *auth.MissingPermissionError
		if errors.As(cause, &missing) {
			return fmt.Sprintf("Unauthorized (%s)", missing)
		}
	}
	return "Unauthorized (a client certificate of the cluster's CA or a valid bearer token is needed)"
}

// describe formats the permissions as the real kubelet does.
func describe(anyOf []authorizationv1.ResourceAttributes) string {
	subresources := make([]string, 0, len(anyOf))
	for i := range anyOf {
		subresources = append(subresources, anyOf[i].Subresource)
	}
	return fmt.Sprintf("verb=%s, resource=nodes, subresource(s)=[%s]", anyOf[0].Verb, strings.Join(subresources, " "))
}
