package liqov0

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/kubeletapi"
)

// kubeletAPI sends to the virtual kubelet of this project the requests that Liqo's virtual kubelet got before.
func (f *federation) kubeletAPI(t *testing.T, stock map[string]error) {
	t.Helper()
	for call, err := range f.kubeletCalls(t, "kept") {
		require.NoError(t, err, "%s; with Liqo's virtual kubelet: %v", call, stock[call])
	}
	f.refused(t, "kept")
	f.served(t, "kept")
}

// answered bounds a call of a kubelet API.
const answered = 10 * time.Second

// kubeletCalls sends every request of the kubelet API for a pod that is forwarded to the provider, along the path of
// kubectl: API server of the broker, its virtual kubelet, API server of the provider, KWOK. It returns the error of
// each call.
func (f *federation) kubeletCalls(t *testing.T, name string) map[string]error {
	t.Helper()
	p := &kubeletapi.Pod{Config: f.broker.Config, Kube: f.broker.Kube, Namespace: "parity", Name: name, Container: "c"}
	exec := func(dial kubeletapi.Dial) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) { return p.Exec(ctx, dial, sentence, "head", "-n", "1") }
	}
	logRead := "the log of the pod: the Node has the port of its virtual kubelet, and that a certificate"
	eventually(t, logRead, func(ctx context.Context) error {
		_, err := p.Log(ctx)
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), answered)
	defer cancel()
	errs := map[string]error{}
	var mutex sync.Mutex
	var group sync.WaitGroup
	for call, c := range map[string]struct {
		ask  func(context.Context) (string, error)
		want string
	}{
		"logs":                {p.Log, simulatedLog},
		"logs -f":             {p.Follow, simulatedLog},
		"exec over SPDY":      {exec(kubeletapi.SPDY), sentence},
		"exec over WebSocket": {exec(kubeletapi.WebSocket), sentence},
		"attach": {func(ctx context.Context) (string, error) {
			return p.Attach(ctx, func() error { return f.provider.AppendPodLog("said while attached") })
		}, "said while attached"},
		// KWOK forwards every port to the etcd of its cluster.
		"port-forward": {func(ctx context.Context) (string, error) { return p.Forward(ctx, 80, "/health") }, `"health":"true"`},
	} {
		group.Go(func() {
			answer, err := c.ask(ctx)
			if err == nil && !strings.Contains(answer, c.want) {
				err = fmt.Errorf("it answers %q", answer)
			}
			mutex.Lock()
			defer mutex.Unlock()
			errs[call] = err
		})
	}
	group.Wait()
	t.Log(errs)
	return errs
}

const (
	sentence     = "to the provider and back\n"
	simulatedLog = "hello from a simulated container"
)

// directCalls returns the requests for one pod that a caller sends to the kubelet itself: methods by path.
func directCalls(name string) map[string]string {
	pod := "/parity/" + name
	return map[string]string{
		"/pods":                                  http.MethodGet,
		"/containerLogs" + pod + "/c":            http.MethodGet,
		"/exec" + pod + "/c?command=id&output=1": http.MethodPost,
		"/attach" + pod + "/c?output=1":          http.MethodPost,
		"/portForward" + pod + "?port=80":        http.MethodPost,
		"/run" + pod + "/c?cmd=id":               http.MethodPost,
		"/stats/summary":                         http.MethodGet,
	}
}

// kubeletURL returns the URL of the virtual kubelet of the broker.
func (f *federation) kubeletURL(t *testing.T) string {
	t.Helper()
	var node corev1.Node
	require.NoError(t, f.broker.Client.Get(t.Context(), client.ObjectKey{Name: f.broker.VirtualNode(f.provider)}, &node))
	return kubeletapi.URL(&node)
}

// refused sends the calls without credentials, and with credentials of callers without rights.
func (f *federation) refused(t *testing.T, name string) {
	t.Helper()
	token, err := f.broker.Kube.CoreV1().ServiceAccounts(metav1.NamespaceDefault).
		CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	foreign, err := f.provider.ClientConfig("admin", "system:masters")
	require.NoError(t, err)
	base := f.kubeletURL(t)
	for caller, c := range map[string]struct {
		config *rest.Config
		want   int
	}{
		"no credentials":                   {&rest.Config{}, http.StatusUnauthorized},
		"no such token":                    {&rest.Config{BearerToken: "made.up.token"}, http.StatusUnauthorized},
		"a certificate of another cluster": {foreign, http.StatusUnauthorized},
		"a ServiceAccount without rights":  {&rest.Config{BearerToken: token.Status.Token}, http.StatusForbidden},
	} {
		for path, method := range directCalls(name) {
			ctx, cancel := context.WithTimeout(t.Context(), answered)
			status, body, err := kubeletapi.Ask(ctx, c.config, method, base+path)
			cancel()
			require.NoError(t, err)
			assert.Equal(t, c.want, status, "%s, %s %s: %s", caller, method, path, body)
		}
	}
}

// served sends calls with the credentials of the API server, and of an administrator.
func (f *federation) served(t *testing.T, name string) {
	t.Helper()
	base := f.kubeletURL(t)
	server, err := f.broker.ClientConfig("kube-apiserver-kubelet-client")
	require.NoError(t, err)
	for caller, config := range map[string]*rest.Config{"the API server": server, "an administrator": f.broker.Config} {
		ctx, cancel := context.WithTimeout(t.Context(), answered)
		defer cancel()
		status, body, err := kubeletapi.Ask(ctx, config, http.MethodGet, base+"/containerLogs/parity/"+name+"/c")
		require.NoError(t, err, caller)
		assert.Equal(t, http.StatusOK, status, caller)
		assert.Contains(t, body, simulatedLog, caller)
		exec, err := url.Parse(base + "/exec/parity/" + name + "/c?command=head&command=-n&command=1&input=1&output=1&error=1")
		require.NoError(t, err)
		output, err := kubeletapi.Exec(ctx, kubeletapi.Caller(config), kubeletapi.SPDY, exec, sentence)
		require.NoError(t, err, caller)
		assert.Equal(t, sentence, output, caller)
	}
}

// open is the baseline of refused: Liqo's virtual kubelet of v0.9.4 serves every caller.
func (f *federation) open(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answered)
	defer cancel()
	status, body, err := kubeletapi.Ask(ctx, &rest.Config{}, http.MethodGet, f.kubeletURL(t)+"/containerLogs/parity/"+name+"/c")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, simulatedLog)
}
