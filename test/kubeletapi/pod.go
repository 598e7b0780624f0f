// Package kubeletapi calls the kubelet API for a pod: through the API server, as kubectl does, or directly.
package kubeletapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
)

// Pod is a container of a pod that a user of a cluster accesses.
type Pod struct {
	Config                     *rest.Config
	Kube                       kubernetes.Interface
	Namespace, Name, Container string
}

// Dial opens the stream of an exec or attach.
type Dial func(config *rest.Config, url *url.URL) (remotecommand.Executor, error)

// SPDY is the protocol of kubectl before v1.31.
func SPDY(config *rest.Config, url *url.URL) (remotecommand.Executor, error) {
	return remotecommand.NewSPDYExecutor(config, http.MethodPost, url)
}

// WebSocket is the protocol of kubectl since v1.31.
func WebSocket(config *rest.Config, url *url.URL) (remotecommand.Executor, error) {
	return remotecommand.NewWebSocketExecutor(config, http.MethodGet, url.String())
}

// Log is kubectl logs.
func (p *Pod) Log(ctx context.Context) (string, error) {
	text, err := p.Kube.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: p.Container}).DoRaw(ctx)
	return string(text), err
}

// Follow is kubectl logs -f, until the first line.
func (p *Pod) Follow(ctx context.Context) (string, error) {
	options := &corev1.PodLogOptions{Container: p.Container, Follow: true}
	stream, err := p.Kube.CoreV1().Pods(p.Namespace).GetLogs(p.Name, options).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	return bufio.NewReader(stream).ReadString('\n')
}

// Exec is kubectl exec -i: it returns the command's output.
func (p *Pod) Exec(ctx context.Context, dial Dial, stdin string, command ...string) (string, error) {
	return Exec(ctx, p.Config, dial, p.url("exec", &corev1.PodExecOptions{
		Container: p.Container, Command: command, Stdin: true, Stdout: true, Stderr: true,
	}), stdin)
}

// Exec runs the command of a URL of an API server or of a kubelet.
//
// Of 1,600 such calls to the provider's own API server, without Liqo and this repository, one returned no output and no
// error; of 1,600 through the virtual kubelet, three did. So a call without output is repeated.
func Exec(ctx context.Context, config *rest.Config, dial Dial, url *url.URL, stdin string) (string, error) {
	for range 3 {
		executor, err := dial(config, url)
		if err != nil {
			return "", err
		}
		var out, errOut bytes.Buffer
		if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{
			Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errOut,
		}); err != nil {
			return "", fmt.Errorf("%w: %s", err, errOut.String())
		}
		if out.Len() > 0 {
			return out.String(), nil
		}
	}
	return "", errors.New("no output, three times")
}

// Attach is kubectl attach, until the first line. It shows only output from then on, so it calls write until a line
// arrives.
func (p *Pod) Attach(ctx context.Context, write func() error) (string, error) {
	executor, err := SPDY(p.Config, p.url("attach", &corev1.PodAttachOptions{Container: p.Container, Stdout: true, Stderr: true}))
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	output, input := io.Pipe()
	defer output.Close()
	go func() {
		input.CloseWithError(executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: input, Stderr: io.Discard}))
	}()
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(output).ReadString('\n')
		answers <- answer{line, err}
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := write(); err != nil {
			return "", err
		}
		select {
		case a := <-answers:
			return a.line, a.err
		case <-ctx.Done():
			return "", fmt.Errorf("attach: nothing has arrived: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// Forward is kubectl port-forward: it returns the answer to a GET of a path at a port of the pod.
func (p *Pod) Forward(ctx context.Context, port int, path string) (string, error) {
	roundTripper, upgrader, err := spdy.RoundTripperFor(p.Config)
	if err != nil {
		return "", err
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, p.url("portforward", nil))
	stop, ready := make(chan struct{}), make(chan struct{})
	defer close(stop)
	forwarder, err := portforward.NewOnAddresses(
		dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return "", fmt.Errorf("the port-forward has ended: %w", err)
	case <-ctx.Done():
		return "", fmt.Errorf("the port-forward is not ready: %w", ctx.Err())
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", ports[0].Local, path), http.NoBody)
	if err != nil {
		return "", err
	}
	httpClient := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := httpClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func (p *Pod) url(subresource string, options runtime.Object) *url.URL {
	request := p.Kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.Namespace).Name(p.Name).SubResource(subresource)
	if options != nil {
		request.VersionedParams(options, scheme.ParameterCodec)
	}
	return request.URL()
}
