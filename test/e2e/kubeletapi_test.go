package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// simulatedLog is KWOK's log of every pod.
const simulatedLog = "hello from a simulated container"

// kubeletAPI sends requests along the path of kubectl: local API server, virtual kubelet, remote API server, remote
// kubelet.
func kubeletAPI(t *testing.T, f *federation) {
	local, _ := f.namespaces(t)
	pod := newPod(local, "talker")
	f.runPod(t, pod)
	f.kubeletCalls(t, pod)
}

// kubeletCalls sends every request of the kubelet API for a pod of local that runs at remote.
func (f *federation) kubeletCalls(t *testing.T, pod *corev1.Pod) {
	p := &kubeletapi.Pod{Config: f.local.Config, Kube: f.local.Kube, Namespace: pod.Namespace, Name: pod.Name, Container: "main"}

	t.Run("logs", func(t *testing.T) {
		// The virtual kubelet's serving certificate may not be issued yet.
		eventually(t, 30*time.Second, func(ctx context.Context) error {
			text, err := p.Log(ctx)
			if err == nil && !strings.Contains(text, simulatedLog) {
				err = fmt.Errorf("the log is %q", text)
			}
			return err
		})
	})
	for name, call := range map[string]struct {
		ask  func(context.Context) (string, error)
		want string
	}{
		"logs -f":             {p.Follow, simulatedLog},
		"exec over SPDY":      {execOver(p, kubeletapi.SPDY), "to the provider and back\n"},
		"exec over WebSocket": {execOver(p, kubeletapi.WebSocket), "to the provider and back\n"},
		"attach": {func(ctx context.Context) (string, error) {
			return p.Attach(ctx, func() error { return f.remote.AppendPodLog("said while attached") })
		}, "said while attached"},
		// The sandbox's simulated kubelet forwards every port to the provider's etcd.
		"port-forward": {func(ctx context.Context) (string, error) { return p.Forward(ctx, 80, "/health") }, `"health":"true"`},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patient)
			defer cancel()
			answer, err := call.ask(ctx)
			require.NoError(t, err)
			assert.Contains(t, answer, call.want)
		})
	}
	t.Run("callers", func(t *testing.T) { f.callers(t) })
}

func execOver(p *kubeletapi.Pod, dial kubeletapi.Dial) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		const line = "to the provider and back\n"
		answer, err := p.Exec(ctx, dial, line, "head", "-n", "1")
		if err == nil && answer != line {
			err = fmt.Errorf("exec answered %q, want %q and nothing else", answer, line)
		}
		return answer, err
	}
}

// callers sends requests to the virtual kubelet directly. The stock one answers any caller, a known weakness, so the
// outcome depends on the image.
func (f *federation) callers(t *testing.T) {
	base := f.kubeletURL(t)
	anonymous := &http.Client{Timeout: 10 * time.Second, Transport: insecure()}
	resp, err := anonymous.Get(base + "/pods")
	require.NoError(t, err)
	resp.Body.Close()
	if f.image == sandbox.ImageStock {
		assert.Equal(t, http.StatusOK, resp.StatusCode, "Liqo v1.2.0 does not authenticate callers")
		return
	}
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)

	for name, c := range map[string]struct {
		config func() (*rest.Config, error)
		want   int
	}{
		"a stranger with a certificate of the cluster": {
			func() (*rest.Config, error) { return f.local.ClientConfig("stranger") }, http.StatusForbidden,
		},
		"the API server": {
			func() (*rest.Config, error) { return f.local.ClientConfig("kube-apiserver-kubelet-client") }, http.StatusOK,
		},
		"an administrator": {
			func() (*rest.Config, error) { return f.local.ClientConfig("admin", "system:masters") }, http.StatusOK,
		},
		"a certificate of another cluster": {
			func() (*rest.Config, error) { return f.remote.ClientConfig("admin", "system:masters") }, http.StatusUnauthorized,
		},
		"a ServiceAccount without rights": {f.local.DefaultToken(t.Context()), http.StatusForbidden},
		"no such token": {
			func() (*rest.Config, error) { return &rest.Config{BearerToken: "made.up.token"}, nil }, http.StatusUnauthorized,
		},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := c.config()
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			status, body, err := kubeletapi.Ask(ctx, config, http.MethodGet, base+"/pods")
			require.NoError(t, err)
			assert.Equal(t, c.want, status, body)
		})
	}
}

func insecure() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
}

// kubeletURL returns the URL of the kubelet in the Node.
func (f *federation) kubeletURL(t *testing.T) string {
	t.Helper()
	var node corev1.Node
	require.NoError(t, f.local.Client.Get(t.Context(), client.ObjectKey{Name: f.node}, &node))
	return kubeletapi.URL(&node)
}
