package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capacitorset/liqo-broker-vk/pkg/auth"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

const (
	node = "liqo-broker"
	// maxHeader is the catalog's maxHeader.
	maxHeader = 16 << 10
)

// catalogUnderTest is a catalog of three providers, consumers c1 and c2, and a pod of each and of the broker's own
// cluster, behind a real server.
type catalogUnderTest struct {
	t      *testing.T
	url    string
	server *Server
	view   *observed
	// objects are the objects of the view at the beginning; unsynced is a view that has not read them yet.
	objects  []client.Object
	unsynced bool
	streams  *subscriptions
	live     client.Client
	kube     *kubefake.Clientset
	log      *lines
	ca       *authority
	http     map[string]*http.Client // By certificate; "" is without one.

	mu      sync.Mutex
	reviews int // Of tokens; guarded by mu.
	broken  bool
}

// lines has the logged lines.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		fmt.Fprintln(&l.text, prefix, args)
	}, funcr.Options{})
}

// users has the user of each token.
var users = map[string]string{
	"operator":  "system:serviceaccount:ops:operator",
	"namespace": "system:serviceaccount:ops:of-web-c1",
	"powerless": "system:serviceaccount:ops:powerless",
	"pods":      "system:serviceaccount:ops:reader-of-pods",
	"people-c1": "system:serviceaccount:liqo-tenant-c1:people",
}

// allowed is RBAC. The operator has all rights, users of c1 have the rights of the ClusterRole of Liqo's peering, and
// one user may read one namespace.
func allowed(spec *authorizationv1.SubjectAccessReviewSpec) bool {
	what := spec.ResourceAttributes
	switch spec.User {
	case users["operator"]:
		return true
	case users["pods"]:
		return what.Resource == "pods"
	case "c1", users["people-c1"]:
		return what.Namespace == "liqo-tenant-c1" && what.Group == "authentication.liqo.io" && what.Resource == "resourceslices"
	case "c2":
		return what.Namespace == "liqo-tenant-c2" && what.Group == "authentication.liqo.io" && what.Resource == "resourceslices"
	case users["namespace"]:
		return what.Resource == "pods" && what.Namespace == "web-c1" || what.Resource == "providerclusters" && what.Verb == "list"
	}
	return false
}

// start serves a catalog until the test ends.
func start(t *testing.T, change ...func(*catalogUnderTest)) *catalogUnderTest {
	t.Helper()
	c := &catalogUnderTest{
		t: t, view: newObserved(t), objects: federation(), log: &lines{}, ca: newAuthority(t),
		http: map[string]*http.Client{},
	}
	c.kube = c.apiServer()
	c.live = clusterWith(t, c.objects)
	c.objects = append(c.objects, policies()...)
	c.server = New(c.config(c.ca, caller.Limits{PerSecond: 1e7, Burst: 10000, Streams: 2, TotalStreams: 3}))
	for _, f := range change {
		f(c)
	}
	if !c.unsynced {
		t.Cleanup(c.view.run(c.objects...))
	}
	// Changes of the test are in the Config; the other parts are made from it again.
	c.server.Rights.Authorizer = auth.NewLimitedReviewer(c.kube, "grant it", c.server.Allowances.SpendReview)
	c.server.Identifier = caller.NewIdentifier(auth.NewTokenReviewer(c.kube, "grant it"), c.ca, c.server.Allowances, clock.RealClock{})
	c.server = New(c.server.Config)
	c.streams = &subscriptions{view: c.view}
	c.server.subscribe = c.streams.subscribe
	c.serve()
	return c
}

// config is the config of a server whose callers have certificates of an authority, if it is not nil.
func (c *catalogUnderTest) config(certificates authenticator.Request, limits caller.Limits) Config {
	allowances := caller.NewAllowances(limits, nil, clock.RealClock{})
	return Config{
		Log: c.log.logger(), Version: "v0", Node: node, Clock: clock.RealClock{}, View: c.view.View,
		Explain: explain.NewExplainer(c.live, node, c.view.State(), time.Now), Live: c.live,
		Identifier: caller.NewIdentifier(auth.NewTokenReviewer(c.kube, "grant it"), certificates, allowances, clock.RealClock{}),
		Allowances: allowances, Rights: &caller.Rights{Authorizer: auth.NewReviewer(c.kube, "grant it"), Tenants: c.view},
		Metrics: middleware.NewMetrics(),
	}
}

func (c *catalogUnderTest) serve() {
	handler, err := c.server.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic("on purpose")
		}
		http.NotFound(w, r)
	}))
	require.NoError(c.t, err)
	ln, err := (&net.ListenConfig{}).Listen(c.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(c.t, err)
	c.url = "https://" + ln.Addr().String()
	cert, key := c.ca.sign(c.t, &x509.Certificate{Subject: pkix.Name{CommonName: "catalog"}})
	tlsConfig := &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
		ClientAuth:   tls.RequestClientCert, ClientCAs: c.ca.pool, NextProtos: []string{"h2", "http/1.1"},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- httpserve.Run(ctx, &http.Server{
			Handler: handler, TLSConfig: tlsConfig, MaxHeaderBytes: maxHeader,
		}, ln)
	}()
	c.t.Cleanup(func() {
		for _, client := range c.http {
			client.CloseIdleConnections()
		}
		cancel()
		require.NoError(c.t, <-done)
	})
}

// apiServer reviews tokens and rights.
func (c *catalogUnderTest) apiServer() *kubefake.Clientset {
	kube := kubefake.NewSimpleClientset()
	kube.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		c.reviews++
		broken := c.broken
		c.mu.Unlock()
		if broken {
			return true, nil, fmt.Errorf("connection refused")
		}
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		if name, ok := users[review.Spec.Token]; ok {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: name}}
		} else {
			review.Status.Error = "[invalid bearer token]"
		}
		return true, review, nil
	})
	kube.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		review.Status.Allowed = allowed(&review.Spec)
		return true, review, nil
	})
	return kube
}

// call is a request.
type call struct {
	method, path, body string
	// token and certificate are the caller's; "" is none.
	token, certificate string
	header             map[string]string
}

// reply is the answer to a call.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r *reply) problem(t *testing.T) (detail string, locations []string) {
	t.Helper()
	require.Equal(t, "application/problem+json", r.header.Get("Content-Type"), r.body)
	var p struct {
		Status int    `json:"status"`
		Title  string `json:"title"`
		Detail string `json:"detail"`
		Errors []struct {
			Location string `json:"location"`
		} `json:"errors"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.body), &p), r.body)
	require.Equal(t, r.status, p.Status)
	require.Equal(t, http.StatusText(r.status), p.Title)
	for _, e := range p.Errors {
		locations = append(locations, e.Location)
	}
	return p.Detail, locations
}

// do makes a call.
func (c *catalogUnderTest) do(in call) *reply {
	c.t.Helper()
	response := c.open(c.t.Context(), in)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(c.t, err)
	return &reply{status: response.StatusCode, header: response.Header, body: string(body)}
}

func (c *catalogUnderTest) open(ctx context.Context, in call) *http.Response {
	c.t.Helper()
	if in.method == "" {
		in.method = http.MethodGet
	}
	request, err := http.NewRequestWithContext(ctx, in.method, c.url+in.path, strings.NewReader(in.body))
	require.NoError(c.t, err)
	if in.body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if in.token != "" {
		request.Header.Set("Authorization", "Bearer "+in.token)
	}
	for name, value := range in.header {
		request.Header.Set(name, value)
	}
	if c.http[in.certificate] == nil {
		c.http[in.certificate] = c.ca.client(c.t, in.certificate)
	}
	response, err := c.http[in.certificate].Do(request)
	require.NoError(c.t, err)
	return response
}

// ids are the ids in a list of the API.
func ids(t *testing.T, body string) []string {
	t.Helper()
	var list struct {
		Items []struct{ ID, Pod, Name, Consumer string }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &list), body)
	var all []string
	for _, item := range list.Items {
		all = append(all, item.ID+item.Pod+item.Name)
	}
	return all
}

func compact(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, json.Compact(&out, []byte(text)), text)
	return out.String()
}
