package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// simulatedLog is what KWOK answers as the log of every pod.
const simulatedLog = "hello from a simulated container"

// kubeletAPI goes the way of kubectl: local API server, virtual kubelet, remote
// API server, remote kubelet.
func kubeletAPI(t *testing.T, f *federation) {
	local, _ := f.namespaces(t)
	pod := newPod(local, "talker")
	f.runPod(t, pod)
	f.kubeletCalls(t, pod)
}

// kubeletCalls asks for everything that a kubelet answers about a pod of local that runs at remote.
func (f *federation) kubeletCalls(t *testing.T, pod *corev1.Pod) {
	local := pod.Namespace
	pods := f.local.Kube.CoreV1().Pods(local)

	t.Run("logs", func(t *testing.T) {
		// The virtual kubelet's serving certificate may still be in the making.
		eventually(t, 30*time.Second, func(ctx context.Context) error {
			text, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
			if err == nil && !strings.Contains(string(text), simulatedLog) {
				err = fmt.Errorf("the log is %q", text)
			}
			return err
		})
	})
	t.Run("logs -f", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		stream, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
		require.NoError(t, err)
		defer stream.Close()
		line, err := bufio.NewReader(stream).ReadString('\n')
		require.NoError(t, err)
		assert.Contains(t, line, simulatedLog)
	})
	for name, dial := range map[string]func(*rest.Config, string, *rest.Request) (remotecommand.Executor, error){
		"SPDY": func(c *rest.Config, method string, r *rest.Request) (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(c, method, r.URL())
		},
		"WebSocket": func(c *rest.Config, _ string, r *rest.Request) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(c, http.MethodGet, r.URL().String())
		},
	} {
		t.Run("exec over "+name, func(t *testing.T) {
			req := f.local.Kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(local).Name(pod.Name).SubResource("exec").
				VersionedParams(&corev1.PodExecOptions{
					Container: "main", Command: []string{"head", "-n", "1"}, Stdin: true, Stdout: true, Stderr: true,
				}, scheme.ParameterCodec)
			executor, err := dial(f.local.Config, http.MethodPost, req)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), patient)
			defer cancel()
			var out, errOut bytes.Buffer
			err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{
				Stdin: strings.NewReader("to the provider and back\n"), Stdout: &out, Stderr: &errOut,
			})
			require.NoError(t, err, errOut.String())
			assert.Equal(t, "to the provider and back\n", out.String())
		})
	}
	t.Run("attach", func(t *testing.T) {
		req := f.local.Kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(local).Name(pod.Name).SubResource("attach").
			VersionedParams(&corev1.PodAttachOptions{Container: "main", Stdout: true, Stderr: true}, scheme.ParameterCodec)
		executor, err := remotecommand.NewSPDYExecutor(f.local.Config, http.MethodPost, req.URL())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		read, write := io.Pipe()
		defer read.Close()
		go func() {
			write.CloseWithError(executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: write, Stderr: io.Discard}))
		}()
		// Attaching shows what is written from then on, so keep writing.
		lines := make(chan string, 1)
		go func() {
			line, err := bufio.NewReader(read).ReadString('\n')
			lines <- fmt.Sprint(line, err)
		}()
		eventually(t, 20*time.Second, func(context.Context) error {
			require.NoError(t, f.remote.AppendPodLog("said while attached"))
			select {
			case line := <-lines:
				assert.Contains(t, line, "said while attached")
				return nil
			default:
				return fmt.Errorf("nothing has arrived")
			}
		})
	})
	t.Run("port-forward", func(t *testing.T) { f.forward(t, pod) })
	t.Run("callers", func(t *testing.T) { f.callers(t) })
}

// forward reaches the provider's etcd, which is where the sandbox's simulated
// kubelet leads every forwarded port.
func (f *federation) forward(t *testing.T, pod *corev1.Pod) {
	roundTripper, upgrader, err := spdy.RoundTripperFor(f.local.Config)
	require.NoError(t, err)
	url := f.local.Kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, url)
	stop, ready := make(chan struct{}), make(chan struct{})
	defer close(stop)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:80"}, stop, ready, io.Discard, io.Discard)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the port-forward is not ready after 20 s")
	}
	ports, err := forwarder.GetPorts()
	require.NoError(t, err)
	httpClient := &http.Client{Timeout: 20 * time.Second}
	resp, err := httpClient.Get(fmt.Sprintf("http://127.0.0.1:%d/health", ports[0].Local))
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Contains(t, string(body), `"health":"true"`)
}

// callers goes to the virtual kubelet directly. The stock one answers anybody,
// which is a known weakness and why the outcome depends on the image.
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
		"a stranger with a certificate of the cluster": {func() (*rest.Config, error) { return f.local.ClientConfig("stranger") }, http.StatusForbidden},
		"the API server":                   {func() (*rest.Config, error) { return f.local.ClientConfig("kube-apiserver-kubelet-client") }, http.StatusOK},
		"an administrator":                 {func() (*rest.Config, error) { return f.local.ClientConfig("admin", "system:masters") }, http.StatusOK},
		"a certificate of another cluster": {func() (*rest.Config, error) { return f.remote.ClientConfig("admin", "system:masters") }, http.StatusUnauthorized},
		"a ServiceAccount without rights":  {f.local.DefaultToken(t.Context()), http.StatusForbidden},
		"no such token":                    {func() (*rest.Config, error) { return &rest.Config{BearerToken: "made.up.token"}, nil }, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := c.config()
			require.NoError(t, err)
			config.Insecure, config.CAData, config.CAFile = true, nil, ""
			httpClient, err := rest.HTTPClientFor(config)
			require.NoError(t, err)
			httpClient.Timeout = 10 * time.Second
			resp, err := httpClient.Get(base + "/pods")
			require.NoError(t, err)
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			assert.Equal(t, c.want, resp.StatusCode, "%s", body)
		})
	}
}

func insecure() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
}

// kubeletURL is the address of the kubelet in the Node.
func (f *federation) kubeletURL(t *testing.T) string {
	t.Helper()
	var node corev1.Node
	require.NoError(t, f.local.Client.Get(t.Context(), client.ObjectKey{Name: f.node}, &node))
	return fmt.Sprintf("https://%s:%d", node.Status.Addresses[0].Address, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
}
