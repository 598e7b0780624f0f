package catalog

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"slices"
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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/access"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/federation"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const node = "liqo-broker"

// catalogUnderTest is a catalog of three providers, consumers c1 and c2, and a pod of each and of the broker's own
// cluster, behind a real server.
type catalogUnderTest struct {
	t      *testing.T
	url    string
	server *server
	view   *fakeView
	live   client.Client
	kube   *kubefake.Clientset
	log    *lines
	ca     *authority
	http   map[string]*http.Client // By certificate; "" is without one.

	mu      sync.Mutex
	reviews int // Of tokens; guarded by mu.
	broken  bool
}

// lines is what was logged.
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

// The tokens of people, and whose they are.
var users = map[string]string{
	"operator":  "system:serviceaccount:ops:operator",
	"namespace": "system:serviceaccount:ops:of-web-c1",
	"nobody":    "system:serviceaccount:ops:nobody",
	"people-c1": "system:serviceaccount:liqo-tenant-c1:people",
}

// allowed is RBAC: the operator may do everything, those of c1 what the ClusterRole of Liqo's peering says, and one person
// may look at one namespace.
func allowed(spec *authorizationv1.SubjectAccessReviewSpec) bool {
	what := spec.ResourceAttributes
	switch spec.User {
	case users["operator"]:
		return true
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
	c := &catalogUnderTest{t: t, view: newFakeView(), log: &lines{}, ca: newAuthority(t), http: map[string]*http.Client{}}
	c.kube = c.apiServer()
	c.live = fakeCluster(t)
	allowances := caller.NewAllowances(caller.Limits{PerSecond: 10000, Burst: 10000, Streams: 2, TotalStreams: 3}, clock.RealClock{})
	c.server = &server{
		log: c.log.logger(), version: "v0", node: node, clock: clock.RealClock{},
		view: c.view, subscribe: c.view.Subscribe, synced: c.view.Synced,
		explain: explain.NewExplainer(c.live, node, clock.RealClock{}), live: c.live,
		allowances: allowances,
		rights:     &caller.Rights{Authorizer: access.NewReviewer(c.kube, "grant it"), Tenants: c.view},
		origins:    http.NewCrossOriginProtection(), metrics: newMetrics(),
	}
	for _, f := range change {
		f(c)
	}
	c.server.identifier = caller.NewIdentifier(access.NewTokenReviewer(c.kube, "grant it"), c.ca, c.server.allowances, clock.RealClock{})
	c.serve()
	return c
}

func (c *catalogUnderTest) serve() {
	handler, err := c.server.handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic("on purpose")
		}
		http.NotFound(w, r)
	}))
	require.NoError(c.t, err)
	ln, err := (&net.ListenConfig{}).Listen(c.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(c.t, err)
	c.url = "https://" + ln.Addr().String()
	own := &selfSigned{now: time.Now}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- httpserve.Run(ctx, &http.Server{
			Handler: handler, TLSConfig: tlsConfig(own.get, c.ca.options), MaxHeaderBytes: maxHeader,
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

// reply is what came back.
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

// authority is the CA of a cluster.
type authority struct {
	authenticator.Request
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	a.cert, a.key = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.pool.AddCert(a.cert)
	a.Request = access.NewCertificateAuthenticator(caContent{options: a.options})
	return a
}

func (a *authority) options() (x509.VerifyOptions, bool) {
	return x509.VerifyOptions{Roots: a.pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

func (a *authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert, key
}

// client has a certificate, written as "name/organisation,organisation", with "!" before it one that has expired, and with
// "?" one of somebody else's CA.
func (a *authority) client(t *testing.T, certificate string) *http.Client {
	t.Helper()
	cfg := &tls.Config{InsecureSkipVerify: true}
	if certificate != "" {
		by := a
		template := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		if strings.HasPrefix(certificate, "!") {
			template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
		}
		if strings.HasPrefix(certificate, "?") {
			by = newAuthority(t)
		}
		name, organizations, _ := strings.Cut(strings.TrimLeft(certificate, "!?"), "/")
		template.Subject = pkix.Name{CommonName: name, Organization: strings.Split(organizations, ",")}
		cert, key := by.sign(t, template)
		mine := tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
		// Whatever CAs the server names.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &mine, nil }
	}
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: cfg, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// caContent is the CA as package access wants it.
type caContent struct {
	access.ClientCA
	options func() (x509.VerifyOptions, bool)
}

func (c caContent) VerifyOptions() (x509.VerifyOptions, bool) { return c.options() }

// fakeView answers from what it is given, by a naive filter.
type fakeView struct {
	mu         sync.Mutex
	filled     bool
	clusters   []liqov1beta1.ForeignCluster
	providers  []api.Provider
	placements []api.Placement
	policies   []api.Policy
	stream     chan federation.Change
	open       int // Subscriptions; guarded by mu.
	scopes     []federation.Scope
}

// moment is when everything happened.
var moment = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newFakeView() *fakeView {
	v := &fakeView{filled: true, stream: make(chan federation.Change, 100)}
	for _, id := range []string{"p1", "p2", "p3"} {
		amounts := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")}
		v.providers = append(v.providers, api.Provider{
			ID: id, Enabled: true, Ready: id != "p3", Region: "eu", Price: ptr.To(0.04), Created: moment,
			Attributes: map[string]string{"region": "eu", "price": "0.04"},
			Resources:  api.Resources{Granted: amounts, Free: amounts},
			Conditions: []api.Condition{{Type: "Ready", Status: "True", Since: moment}},
		})
		v.clusters = append(v.clusters, liqov1beta1.ForeignCluster{
			TypeMeta:   metav1.TypeMeta{Kind: "ForeignCluster", APIVersion: "core.liqo.io/v1beta1"},
			ObjectMeta: metav1.ObjectMeta{Name: "cluster-" + id}, Spec: liqov1beta1.ForeignClusterSpec{ClusterID: liqov1beta1.ClusterID(id)},
		})
	}
	for pod, consumer := range map[string]string{"web-c1/pod-of-c1": "c1", "web-c2/pod-of-c2": "c2", "own/pod-of-nobody": ""} {
		namespace, name, _ := strings.Cut(pod, "/")
		v.placements = append(v.placements, api.Placement{
			Namespace: namespace, Pod: name, Consumer: consumer, Provider: "p1", Phase: "Running", Created: moment, Score: ptr.To(80),
		})
	}
	slices.SortFunc(v.placements, func(a, b api.Placement) int { return strings.Compare(a.Namespace, b.Namespace) })
	for name, consumers := range map[string][]string{"all": nil, "of-c1": {"c1"}, "of-c2": {"c2"}, "of-both": {"c1", "c2"}} {
		v.policies = append(v.policies, api.Policy{Name: name, Consumers: consumers})
	}
	slices.SortFunc(v.policies, func(a, b api.Policy) int { return strings.Compare(a.Name, b.Name) })
	return v
}

func (v *fakeView) Synced() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.filled
}

func (v *fakeView) Providers(q federation.ProviderQuery) (api.ProviderList, error) {
	if q.Continue != "" && q.Continue != "next" {
		return api.ProviderList{}, fmt.Errorf("%w: %q", federation.ErrContinue, q.Continue)
	}
	var list api.ProviderList
	for _, p := range v.providers {
		if (q.Ready == nil || *q.Ready == p.Ready) && len(list.Items) < q.Limit {
			list.Items = append(list.Items, v.selectedBy(p, q.Consumer))
		}
	}
	list.Total = len(list.Items)
	return list, nil
}

func (v *fakeView) selectedBy(p api.Provider, consumer string) api.Provider {
	if consumer != "" {
		p.Selected = ptr.To(true)
	}
	return p
}

func (v *fakeView) Provider(id, consumer string) (api.Provider, bool) {
	for _, p := range v.providers {
		if p.ID == id {
			return v.selectedBy(p, consumer), true
		}
	}
	return api.Provider{}, false
}

func (v *fakeView) History(id string) (api.History, bool) {
	_, ok := v.Provider(id, "")
	return api.History{ID: id, Since: moment}, ok
}

func sees(s federation.Scope, p *api.Placement) bool {
	return s.All || (s.Consumer != "" || s.Namespace != "") &&
		(s.Consumer == "" || s.Consumer == p.Consumer) && (s.Namespace == "" || s.Namespace == p.Namespace)
}

func (v *fakeView) Placements(q federation.PlacementQuery) (api.PlacementList, error) {
	var list api.PlacementList
	for i := range v.placements {
		p := &v.placements[i]
		if sees(q.Scope, p) && (q.Namespace == "" || q.Namespace == p.Namespace) && (q.Consumer == "" || q.Consumer == p.Consumer) {
			list.Items = append(list.Items, *p)
		}
	}
	list.Total = len(list.Items)
	return list, nil
}

func (v *fakeView) Placement(namespace, pod string) (api.Placement, bool) {
	for _, p := range v.placements {
		if p.Namespace == namespace && p.Pod == pod {
			return p, true
		}
	}
	return api.Placement{}, false
}

func (v *fakeView) Flows(s federation.Scope) api.FlowList {
	var list api.FlowList
	for i := range v.placements {
		if p := &v.placements[i]; sees(s, p) {
			list.Items = append(list.Items, api.Flow{Consumer: p.Consumer, Provider: p.Provider, Pods: 1})
		}
	}
	return list
}

func (v *fakeView) Policies(s federation.Scope, _ federation.Page) (api.PolicyList, error) {
	var list api.PolicyList
	for _, p := range v.policies {
		switch {
		case s.All:
		case s.Consumer == "" || len(p.Consumers) > 0 && !slices.Contains(p.Consumers, s.Consumer):
			continue
		case len(p.Consumers) > 0:
			p.Consumers = []string{s.Consumer}
		}
		list.Items = append(list.Items, p)
	}
	list.Total = len(list.Items)
	return list, nil
}

func (v *fakeView) ForeignClusters() []liqov1beta1.ForeignCluster { return v.clusters }

func (v *fakeView) ConsumerOfNamespace(namespace string) string {
	if consumer, ok := strings.CutPrefix(namespace, "web-"); ok {
		return consumer
	}
	return ""
}

func (v *fakeView) TenantNamespace(consumer string) (string, bool) {
	return "liqo-tenant-" + consumer, consumer == "c1" || consumer == "c2"
}

func (v *fakeView) TenantOf(namespace string) (string, bool) {
	consumer, ok := strings.CutPrefix(namespace, "liqo-tenant-")
	return consumer, ok
}

func (v *fakeView) Subscribe(s federation.Scope, _ string) changes {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open++
	v.scopes = append(v.scopes, s)
	return &fakeSubscription{view: v, scope: s}
}

func (v *fakeView) subscriptions() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.open
}

// fakeSubscription gives what the view's stream is given.
type fakeSubscription struct {
	view   *fakeView
	scope  federation.Scope
	synced bool
}

func (s *fakeSubscription) Next(ctx context.Context) ([]federation.Change, error) {
	if !s.synced {
		s.synced = true
		return []federation.Change{{Event: api.EventSync}}, nil
	}
	select {
	case change := <-s.view.stream:
		return []federation.Change{change}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *fakeSubscription) Close() {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()
	s.view.open--
}

// fakeCluster has the objects that are written to, and explained.
func fakeCluster(t *testing.T) client.Client {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	build := fake.NewClientBuilder().WithScheme(scheme)
	for _, id := range []string{"p1", "p2", "p3"} {
		build.WithObjects(
			&v1alpha1.ProviderCluster{
				ObjectMeta: metav1.ObjectMeta{Name: id},
				Spec:       v1alpha1.ProviderClusterSpec{Attributes: map[string]string{"price": "0.04", "region": "eu"}},
				Status: v1alpha1.ProviderClusterStatus{
					Conditions: []metav1.Condition{{Type: v1alpha1.ProviderReady, Status: metav1.ConditionTrue}},
					VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: id + "-1", Ready: true, Resources: v1alpha1.Resources{
						Granted: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")},
					}}},
				},
			},
			&offloadingv1beta1.NamespaceMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: id, Labels: map[string]string{"liqo.io/remote-cluster-id": id}},
				Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
					"web-c1": {Phase: offloadingv1beta1.MappingAccepted}, "web-c2": {Phase: offloadingv1beta1.MappingAccepted},
				}},
			})
	}
	for _, consumer := range []string{"c1", "c2"} {
		build.WithObjects(
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "web-" + consumer, Labels: map[string]string{"liqo.io/remote-cluster-id": consumer},
			}},
			&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "web-" + consumer, Name: "pod-of-" + consumer, UID: "uid-" + "1"},
				Spec:       corev1.PodSpec{NodeName: node},
			})
	}
	return build.Build()
}

// ids are those in a list of the API.
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
