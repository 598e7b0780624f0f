package kubeletapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/capacitorset/liqo-broker-vk/pkg/auth"
)

// authority is a CA that signs client certificates.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test-ca"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{t: t, key: key, cert: cert}
}

func (a *authority) file() string {
	path := filepath.Join(a.t.TempDir(), "ca.crt")
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600))
	return path
}

func (a *authority) client(name string, groups ...string) *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(a.t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// reviews is the API server's side: the users of the tokens, and their permissions.
type reviews struct {
	tokens    map[string]string          // Token to user.
	allowed   map[string]map[string]bool // User to subresources.
	forbidden bool                       // The virtual kubelet may not ask.
	reviewed  atomic.Int32               // TokenReviews.
	asked     atomic.Int32               // SubjectAccessReviews.
	last      atomic.Pointer[authorizationv1.SubjectAccessReviewSpec]
}

func (r *reviews) client() *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r.reviewed.Add(1)
		if r.forbidden {
			return true, nil, kerrors.NewForbidden(schema.GroupResource{Resource: "tokenreviews"}, "", nil)
		}
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		name, known := r.tokens[review.Spec.Token]
		review.Status.Authenticated = known
		review.Status.User.Username = name
		return true, review, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r.asked.Add(1)
		if r.forbidden {
			return true, nil, kerrors.NewForbidden(schema.GroupResource{Resource: "subjectaccessreviews"}, "", nil)
		}
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		r.last.Store(&review.Spec)
		review.Status.Allowed = r.allowed[review.Spec.User][review.Spec.ResourceAttributes.Subresource]
		return true, review, nil
	})
	return client
}

// serveBehind starts a server whose only route is behind a gate.
func serveBehind(t *testing.T, cfg Config) *httptest.Server {
	t.Helper()
	cfg.Log, cfg.NodeName, cfg.Remedy = testr.New(t), "vnode", GrantCommand("liqo-tenant-p1", "p1-large")
	gate, err := newGate(cfg)
	require.NoError(t, err)
	if file, ok := gate.ca.(interface{ RunOnce(context.Context) error }); ok {
		require.NoError(t, file.RunOnce(t.Context()))
	}
	server := httptest.NewUnstartedServer(gate.protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, hijack := w.(http.Hijacker)
		_, flush := w.(http.Flusher)
		if !hijack || !flush {
			http.Error(w, "streams would not work", http.StatusTeapot)
		}
	})))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

type caller struct {
	certificate *tls.Certificate
	token       string
}

func (c caller) get(t *testing.T, server *httptest.Server, path string) (int, string) {
	t.Helper()
	client := server.Client()
	transport := client.Transport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	if c.certificate != nil {
		transport.TLSClientConfig.Certificates = []tls.Certificate{*c.certificate}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody)
	require.NoError(t, err)
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

const logsPath = "/containerLogs/ns/pod/container"

func TestGate(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	grants := map[string]map[string]bool{
		"apiserver":  {"proxy": true},
		"prometheus": {"metrics": true, "pods": true},
	}
	tokens := map[string]string{"good": "prometheus"}
	const remedy = "kubectl create clusterrolebinding liqo-broker-vk-kubelet-auth-liqo-tenant-p1-p1-large " +
		"--clusterrole=liqo-broker-vk-kubelet-auth --serviceaccount=liqo-tenant-p1:p1-large"

	for name, tc := range map[string]struct {
		caller    caller
		path      string
		forbidden bool
		mode      AuthorizationMode
		want      int
		message   string
	}{
		"no credentials get 401":                               {path: logsPath, want: 401, message: "client certificate"},
		"no credentials get 401 on a path that does not exist": {path: "/nope", want: 401},
		"no credentials get 401 with AlwaysAllow too":          {path: logsPath, mode: AuthorizationAlwaysAllow, want: 401},
		"a certificate of another CA gets 401": {
			caller: caller{certificate: stranger.client("apiserver", "system:masters")}, path: logsPath, want: 401,
		},
		"an unknown token gets 401": {caller: caller{token: "bad"}, path: logsPath, want: 401},
		"a certificate with permission passes": {
			caller: caller{certificate: ca.client("apiserver")}, path: logsPath, want: 200,
		},
		"a certificate without permission gets 403": {
			caller: caller{certificate: ca.client("mallory")}, path: logsPath, want: 403,
			message: "user=mallory, verb=get, resource=nodes, subresource(s)=[proxy]",
		},
		"a token with permission passes": {caller: caller{token: "good"}, path: "/metrics/resource", want: 200},
		"a token without that permission gets 403": {
			caller: caller{token: "good"}, path: logsPath, want: 403, message: "user=prometheus",
		},
		"one of two permissions is enough": {caller: caller{token: "good"}, path: "/pods", want: 200},
		"system:masters pass without a review": {
			caller: caller{certificate: ca.client("root", "system:masters")}, path: logsPath, forbidden: true, want: 200,
		},
		"no permission to review fails closed": {
			caller: caller{certificate: ca.client("apiserver")}, path: logsPath, forbidden: true, want: 403, message: remedy,
		},
		"no permission to review a token fails closed": {
			caller: caller{token: "good"}, path: logsPath, forbidden: true, want: 401, message: remedy,
		},
		"AlwaysAllow lets a known caller do everything": {
			caller: caller{token: "good"}, path: logsPath, mode: AuthorizationAlwaysAllow, want: 200,
		},
		"a stranger's certificate with a good token wins": {
			caller: caller{certificate: stranger.client("x"), token: "good"}, path: "/metrics", want: 200,
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := &reviews{tokens: tokens, allowed: grants, forbidden: tc.forbidden}
			server := serveBehind(t, Config{ClientCAFile: ca.file(), Local: api.client(), AuthorizationMode: tc.mode})
			code, body := tc.caller.get(t, server, tc.path)
			require.Equal(t, tc.want, code, body)
			require.Contains(t, body, tc.message)
			require.NotContains(t, body, ": ", "client-go would take it for YAML")
		})
	}
}

func TestAnswersAreRemembered(t *testing.T) {
	ca := newAuthority(t)
	api := &reviews{allowed: map[string]map[string]bool{"apiserver": {"proxy": true}}}
	server := serveBehind(t, Config{ClientCAFile: ca.file(), Local: api.client()})
	apiserver, mallory := caller{certificate: ca.client("apiserver", "g1")}, caller{certificate: ca.client("mallory")}
	for range 3 {
		code, _ := apiserver.get(t, server, logsPath)
		require.Equal(t, 200, code)
		code, _ = mallory.get(t, server, logsPath)
		require.Equal(t, 403, code)
	}
	require.EqualValues(t, 2, api.asked.Load(), "one review per caller and permission")

	code, _ := apiserver.get(t, server, "/stats/summary")
	require.Equal(t, 403, code, "another subresource is another question")
	require.Equal(t, &authorizationv1.ResourceAttributes{
		Verb: "get", Version: "v1", Resource: "nodes", Subresource: "stats", Name: "vnode",
	}, api.last.Load().ResourceAttributes)
	require.ElementsMatch(t, []string{"g1", "system:authenticated"}, api.last.Load().Groups)
}

func TestRequestAttributes(t *testing.T) {
	for name, tc := range map[string]struct {
		method, path string
		verb         string
		subresources []string
	}{
		"logs of a container":     {"GET", "/containerLogs/ns/p/c", "get", []string{"proxy"}},
		"exec by POST":            {"POST", "/exec/ns/p/c", "create", []string{"proxy"}},
		"exec by websocket":       {"GET", "/exec/ns/p/c", "get", []string{"proxy"}},
		"attach":                  {"POST", "/attach/ns/p/c", "create", []string{"proxy"}},
		"port-forward":            {"POST", "/portForward/ns/p", "create", []string{"proxy"}},
		"stats":                   {"GET", "/stats/summary", "get", []string{"stats"}},
		"metrics":                 {"GET", "/metrics", "get", []string{"metrics"}},
		"metrics of cadvisor":     {"GET", "/metrics/cadvisor", "get", []string{"metrics"}},
		"logs of the node":        {"GET", "/logs/", "get", []string{"log"}},
		"pods":                    {"GET", "/pods", "get", []string{"pods", "proxy"}},
		"running pods":            {"GET", "/runningpods/", "get", []string{"pods", "proxy"}},
		"a path that looks alike": {"GET", "/metricsandmore", "get", []string{"proxy"}},
		"PUT":                     {"PUT", "/x", "update", []string{"proxy"}},
		"PATCH":                   {"PATCH", "/x", "patch", []string{"proxy"}},
		"DELETE":                  {"DELETE", "/x", "delete", []string{"proxy"}},
		"a method without a verb": {"CONNECT", "/x", "", []string{"proxy"}},
	} {
		t.Run(name, func(t *testing.T) {
			attributes := requestAttributes("vnode", httptest.NewRequest(tc.method, "https://node"+tc.path, http.NoBody))
			var subresources []string
			for _, a := range attributes {
				require.Equal(t, tc.verb, a.Verb)
				require.Equal(t, "vnode", a.Name)
				require.Equal(t, "nodes", a.Resource)
				require.Empty(t, a.Group)
				subresources = append(subresources, a.Subresource)
			}
			require.Equal(t, tc.subresources, subresources)
		})
	}
}

func TestClientCAFileMustExist(t *testing.T) {
	_, err := newGate(Config{Log: testr.New(t), ClientCAFile: "/does/not/exist", Local: fake.NewClientset()})
	require.ErrorContains(t, err, "--client-ca-file")
}

// Every invented token causes a request to the API server. One host may cause a few, and only one for the same token.
func TestInventedTokensAreLimited(t *testing.T) {
	ca := newAuthority(t)
	api := &reviews{}
	gate, err := newGate(Config{Log: testr.New(t), ClientCAFile: ca.file(), Local: api.client()})
	require.NoError(t, err)
	gate.tokens = auth.NewLimiter(1e-9, 10, 5)
	call := func(from, token string) int {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, logsPath, nil)
		request.RemoteAddr = from
		request.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		gate.protect(http.NotFoundHandler()).ServeHTTP(answer, request)
		return answer.Code
	}
	for range 3 {
		require.Equal(t, http.StatusUnauthorized, call("192.0.2.1:1", "invented"))
	}
	require.EqualValues(t, 1, api.reviewed.Load(), "a token that was rejected is remembered")
	for i := range 20 {
		want := http.StatusUnauthorized
		if i >= 7 {
			want = http.StatusTooManyRequests
		}
		require.Equal(t, want, call(fmt.Sprint("192.0.2.1:", i), fmt.Sprint("invented-", i)), i)
	}
	require.EqualValues(t, 8, api.reviewed.Load())
	require.Equal(t, http.StatusUnauthorized, call("192.0.2.2:1", "another"), "another host has its own")
}

func TestAMissingPermissionIsLoggedAtTheStart(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   AuthorizationMode
		denied string
		logged bool
	}{
		"to review tokens":                      {AuthorizationWebhook, "tokenreviews", true},
		"to review rights":                      {AuthorizationWebhook, "subjectaccessreviews", true},
		"none":                                  {AuthorizationWebhook, "", false},
		"to review tokens, every caller may":    {AuthorizationAlwaysAllow, "tokenreviews", true},
		"to review rights, which nothing needs": {AuthorizationAlwaysAllow, "subjectaccessreviews", false},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("create", "selfsubjectaccessreviews",
				func(action clienttesting.Action) (bool, runtime.Object, error) {
					review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
					review.Status.Allowed = review.Spec.ResourceAttributes.Resource != tc.denied
					return true, review, nil
				})
			var logged []string
			log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
			gate, err := newGate(Config{Log: log, ClientCAFile: newAuthority(t).file(), Local: client, AuthorizationMode: tc.mode})
			require.NoError(t, err)
			gate.checkPermissions(t.Context())
			require.Equal(t, tc.logged, strings.Contains(strings.Join(logged, "\n"), tc.denied) && len(logged) == 1)
		})
	}
}

func TestTheCauseOfAMissingAuthentication(t *testing.T) {
	require.Equal(t, "no credentials", cause(nil))
	require.Equal(t, "certificate has expired", cause(errors.New("certificate has expired")))
}
