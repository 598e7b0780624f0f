package provider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/exec"
)

// terminal is the terminal of a caller.
type terminal struct {
	in    io.Reader
	out   bytes.Buffer
	sizes chan api.TermSize
}

func (t *terminal) Stdin() io.Reader            { return t.in }
func (t *terminal) Stdout() io.WriteCloser      { return nopCloser{&t.out} }
func (t *terminal) Stderr() io.WriteCloser      { return nil }
func (t *terminal) TTY() bool                   { return true }
func (t *terminal) Resize() <-chan api.TermSize { return t.sizes }

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// remoteKubelet is the API server of a remote cluster, with its kubelet: commands print the sizes of their terminal until
// one is 1 column wide, and end with the exit code 3.
func remoteKubelet(t *testing.T) *rest.Config {
	t.Helper()
	print := func(pod string, cmd []string, attach api.AttachIO) error {
		_, _ = fmt.Fprintf(attach.Stdout(), "%s %v:", pod, cmd)
		for size := range attach.Resize() {
			_, _ = fmt.Fprintf(attach.Stdout(), " %dx%d", size.Width, size.Height)
			if size.Width == 1 {
				return exec.CodeExitError{Err: errors.New("it failed"), Code: 3}
			}
		}
		return nil
	}
	kubelet := api.PodHandler(api.PodHandlerConfig{
		RunInContainer: func(_ context.Context, ns, pod, _ string, cmd []string, attach api.AttachIO) error {
			return print(ns+"/"+pod, cmd, attach)
		},
		AttachToContainer: func(_ context.Context, ns, pod, _ string, attach api.AttachIO) error {
			return print(ns+"/"+pod, nil, attach)
		},
		GetContainerLogs: func(context.Context, string, string, string, api.ContainerLogOpts) (io.ReadCloser, error) {
			return nil, nil
		},
	}, false)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/") // ns-home/pods/pod/exec
		query := r.URL.Query()
		asked := url.Values{"command": query["command"]}
		for of, to := range map[string]string{"stdin": "input", "stdout": "output", "tty": "tty"} {
			if query.Get(of) == "true" {
				asked.Set(to, "1")
			}
		}
		r.URL = &url.URL{Path: "/" + path[3] + "/" + path[0] + "/" + path[2] + "/" + query.Get("container"), RawQuery: asked.Encode()}
		r.RequestURI = r.URL.RequestURI()
		kubelet.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

func TestCommandsHaveTheTerminalOfTheCaller(t *testing.T) {
	config := remoteKubelet(t)
	remote, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	c := newCommands(remote.CoreV1().RESTClient, config)
	c.startNamespace("ns", "ns-home")
	for name, run := range map[string]func(context.Context, *terminal) error{
		"ns-home/pod [top -d1]:": func(ctx context.Context, term *terminal) error {
			return c.Exec(ctx, "ns", "pod", "c", []string{"top", "-d1"}, term)
		},
		"ns-home/pod []:": func(ctx context.Context, term *terminal) error { return c.Attach(ctx, "ns", "pod", "c", term) },
	} {
		term := &terminal{in: strings.NewReader(""), sizes: make(chan api.TermSize)}
		go func() {
			for _, size := range []api.TermSize{{Width: 120, Height: 40}, {Width: 200, Height: 50}, {Width: 1, Height: 1}} {
				select {
				case term.sizes <- size:
				case <-t.Context().Done():
				}
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		err := run(ctx, term)
		cancel()
		require.Equal(t, name+" 120x40 200x50 1x1", term.out.String())
		var exit exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 3, exit.ExitStatus())
	}

	c.stopNamespace("ns")
	err = c.Exec(t.Context(), "ns", "pod", "c", nil, &terminal{})
	require.True(t, kerrors.IsNotFound(err), "%v", err)
}

func TestTheSizesOfATerminalEnd(t *testing.T) {
	changes := make(chan api.TermSize, 2)
	ctx, cancel := context.WithCancel(t.Context())
	queue := &sizes{ctx: ctx, changes: changes}
	changes <- api.TermSize{} // It has none yet.
	changes <- api.TermSize{Width: 80, Height: 24}
	require.Equal(t, uint16(80), queue.Next().Width)
	changes <- api.TermSize{}
	require.Nil(t, queue.Next(), "virtual-kubelet sends it for a stream that has ended")
	cancel()
	require.Nil(t, queue.Next())
	close(changes)
	require.Nil(t, (&sizes{ctx: t.Context(), changes: changes}).Next())
}
