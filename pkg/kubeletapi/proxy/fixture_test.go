package proxy

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientexec "k8s.io/client-go/util/exec"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// apiServer is the API server of a provider. It answers for the pods of namespace "remote" as the virtual kubelet
// library does, and checks the rights that Liqo's ClusterRole for virtual kubelets grants.
type apiServer struct {
	*httptest.Server
	// instead answers all requests unless it is nil.
	instead http.HandlerFunc

	mu   sync.Mutex
	seen []*http.Request // Guarded by mu.
	// begun has an element for each stream that has begun, ended has one for each stream that has ended.
	begun, ended chan struct{}
	// closed is closed when the test ends.
	closed chan struct{}
}

const identity = "identity-of-this-cluster"

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	p := &apiServer{begun: make(chan struct{}, 9), ended: make(chan struct{}, 9), closed: make(chan struct{})}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.EnableHTTP2 = true
	p.StartTLS()
	t.Cleanup(func() {
		close(p.closed)
		p.Close()
	})
	return p
}

func (p *apiServer) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	config := &rest.Config{
		Host: p.URL + "/prefix", BearerToken: identity, UserAgent: "broker", TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}
	untrusted.Wrap(config) // As every config of a provider.
	return config
}

func (p *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.seen = append(p.seen, r)
	p.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+identity {
		http.Error(w, "stranger", http.StatusUnauthorized)
		return
	}
	if p.instead != nil {
		p.instead(w, r)
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/prefix/api/v1/namespaces/remote/pods/pod/")
	if !ok || r.Method != http.MethodPost && (path == "exec" || path == "attach") {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	in, out := r.URL.Query(), url.Values{"command": r.URL.Query()["command"]}
	for name, kubelets := range map[string]string{
		"stdin": corev1.ExecStdinParam, "stdout": corev1.ExecStdoutParam, "stderr": corev1.ExecStderrParam, "tty": corev1.ExecTTYParam,
	} {
		if in.Get(name) == "1" {
			out.Set(kubelets, "1")
		}
	}
	r.URL.RawQuery = out.Encode()
	switch path {
	case "log":
		p.logs(w, r, in)
		return
	case "portforward":
		r.URL.Path, r.URL.RawQuery = "/portForward/remote/pod", url.Values{"port": in["ports"]}.Encode()
	default:
		r.URL.Path = "/" + path + "/remote/pod/" + in.Get("container")
	}
	api.PodHandler(api.PodHandlerConfig{
		StreamCreationTimeout: 10 * time.Second, // A connection that was closed before it had a stream is kept for this time.

		RunInContainer: p.exec, AttachToContainer: func(ctx context.Context, ns, pod, container string, attach api.AttachIO) error {
			return p.exec(ctx, ns, pod, container, []string{"attached"}, attach)
		},
		PortForward: func(_ context.Context, _, _ string, _ int32, stream io.ReadWriteCloser) error {
			defer stream.Close()
			_, err := io.CopyN(stream, stream, 5)
			return err
		},
	}, false).ServeHTTP(w, r)
}

// exec runs a command: "fail" exits with 7, "hang" runs until the test ends, every other command echoes its input.
func (p *apiServer) exec(_ context.Context, _, _, container string, command []string, attach api.AttachIO) error {
	p.begun <- struct{}{}
	defer func() { p.ended <- struct{}{} }()
	switch command[0] {
	case "fail":
		_, _ = io.WriteString(attach.Stderr(), "no\n")
		return clientexec.CodeExitError{Code: 7, Err: io.ErrUnexpectedEOF}
	case "hang":
		<-p.closed
		return nil
	case "size":
		size := <-attach.Resize()
		_, err := io.WriteString(attach.Stdout(), strings.Repeat("x", int(size.Width)))
		return err
	}
	if _, err := io.WriteString(attach.Stdout(), container+" "+strings.Join(command, " ")+": "); err != nil {
		return err
	}
	_, err := io.Copy(attach.Stdout(), attach.Stdin())
	return err
}

func (p *apiServer) logs(w http.ResponseWriter, r *http.Request, query url.Values) {
	_, _ = io.WriteString(w, query.Encode()+"\n")
	if query.Get("follow") != "true" {
		return
	}
	w.(http.Flusher).Flush()
	p.begun <- struct{}{}
	<-r.Context().Done()
	p.ended <- struct{}{}
}

// last returns the latest request.
func (p *apiServer) last(t *testing.T) *http.Request {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.NotEmpty(t, p.seen)
	return p.seen[len(p.seen)-1]
}

// providers are q and r, whose VirtualNodes are q1 and r1. One API server, with namespace "ns" as "remote", serves
// both.
type providers struct {
	place    Place
	scrapers []Scraper
}

func (p *providers) Place(at scheduler.Place, namespace string) (Place, bool) {
	ofQ, ofR := scheduler.Place{Provider: "q", VirtualNode: "q1"}, scheduler.Place{Provider: "r", VirtualNode: "r1"}
	return p.place, (at == ofQ || at == ofR) && namespace != "elsewhere"
}

func (p *providers) Scrapers(context.Context) []Scraper { return p.scrapers }

func pod(name, virtualNode string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, Labels: map[string]string{
			v1alpha1.VirtualNodeLabel: virtualNode, v1alpha1.ProviderLabel: strings.TrimRight(virtualNode, "0123456789"),
		},
	}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
}

func namespace(name, consumer string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{consts.RemoteClusterID: consumer},
		Annotations: map[string]string{consts.RemoteNamespaceManagedByAnnotationKey: "liqo-tenant/" + consumer},
	}}
}

func in(namespace string, pod *corev1.Pod) *corev1.Pod {
	pod.Namespace = namespace
	return pod
}

// handler returns the kubelet API in front of one provider.
func handler(t *testing.T, within time.Duration, config *rest.Config, scrapers ...Scraper) http.Handler {
	t.Helper()
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	metrics, err := metricsclient.NewForConfig(config)
	require.NoError(t, err)
	return newServer(Config{
		Log: logr.Discard(), NodeName: "broker",
		Reader: fake.NewClientBuilder().WithObjects(
			pod("pod", "q1"), pod("waiting", ""), pod("astray", "q2"), pod("third", "r1"), namespace("ns", "consumer1"),
			in("consumer2", pod("theirs", "q1")), namespace("consumer2", "consumer2"),
			in("consumer3", pod("theirs", "q1")), namespace("consumer3", "consumer3"),
		).Build(),
		Providers: &providers{
			place: Place{Namespace: "remote", Config: config, Kube: kube, Metrics: metrics}, scrapers: scrapers,
		},
	}, within).routes()
}

// serve starts the kubelet API in front of one provider; its requests end with ctx.
func serve(t *testing.T, ctx context.Context, config *rest.Config, scrapers ...Scraper) *httptest.Server {
	t.Helper()
	handler := handler(t, answerWithin, config, scrapers...)
	var active sync.WaitGroup
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		active.Add(1)
		defer active.Done()
		requestCtx, cancel := context.WithCancel(r.Context())
		defer context.AfterFunc(ctx, cancel)()
		handler.ServeHTTP(w, r.WithContext(requestCtx))
	}))
	server.StartTLS()
	t.Cleanup(func() {
		server.Close()
		active.Wait() // The test's callers have disconnected.
	})
	return server
}

// caller returns the config of a client whose credentials the provider must not see.
func caller(server *httptest.Server) *rest.Config {
	return &rest.Config{Host: server.URL, BearerToken: "token-of-the-caller", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func address(t *testing.T, server *httptest.Server, path string) *url.URL {
	t.Helper()
	u, err := url.Parse(server.URL + path)
	require.NoError(t, err)
	return u
}

func get(t *testing.T, server *httptest.Server, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	response, err := client.Get(server.URL + path)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}
