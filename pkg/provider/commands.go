package provider

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// commands runs commands in containers of remote pods, and attaches to containers. Liqo's pod reflector does so, too
// (NamespacedPodReflector in its pkg/virtualKubelet/reflection/workload), but without the size of the caller's
// terminal, so that an editor has 80 columns, and without any error of attach.
type commands struct {
	client func() rest.Interface
	config *rest.Config

	mu sync.Mutex
	// namespaces are the remote names of the namespaces that are reflected, by their local names; guarded by mu.
	namespaces map[string]string
}

func newCommands(client func() rest.Interface, config *rest.Config) *commands {
	return &commands{client: client, config: config, namespaces: map[string]string{}}
}

func (c *commands) startNamespace(local, remote string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.namespaces[local] = remote
}

func (c *commands) stopNamespace(local string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.namespaces, local)
}

// Exec runs a command until it ends. Its exit code is an ExitError of k8s.io/client-go/util/exec.
func (c *commands) Exec(ctx context.Context, namespace, pod, container string, cmd []string, attach api.AttachIO) error {
	return c.stream(ctx, namespace, pod, "exec", attach, &corev1.PodExecOptions{
		Container: container, Command: cmd,
		Stdin: attach.Stdin() != nil, Stdout: attach.Stdout() != nil, Stderr: attach.Stderr() != nil, TTY: attach.TTY(),
	})
}

// Attach connects the streams with the process of a container until it ends, or the caller leaves.
func (c *commands) Attach(ctx context.Context, namespace, pod, container string, attach api.AttachIO) error {
	return c.stream(ctx, namespace, pod, "attach", attach, &corev1.PodAttachOptions{
		Container: container,
		Stdin:     attach.Stdin() != nil, Stdout: attach.Stdout() != nil, Stderr: attach.Stderr() != nil, TTY: attach.TTY(),
	})
}

func (c *commands) stream(ctx context.Context, namespace, pod, subresource string, attach api.AttachIO, options runtime.Object) error {
	c.mu.Lock()
	remote, reflected := c.namespaces[namespace]
	c.mu.Unlock()
	if !reflected {
		return kerrors.NewNotFound(corev1.Resource("pods"), namespace+"/"+pod)
	}
	ctx, cancel := context.WithCancel(ctx) // For the sizes.
	defer cancel()
	target := c.client().Post().Resource("pods").Namespace(remote).Name(pod).SubResource(subresource).
		VersionedParams(options, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewSPDYExecutor(c.config, http.MethodPost, target)
	if err != nil {
		return fmt.Errorf("%s of pod %s/%s in the remote cluster: %w", subresource, namespace, pod, err)
	}
	streams := remotecommand.StreamOptions{
		Stdin: attach.Stdin(), Stdout: attach.Stdout(), Stderr: attach.Stderr(), Tty: attach.TTY(),
	}
	if attach.TTY() {
		streams.TerminalSizeQueue = &sizes{ctx: ctx, changes: attach.Resize()}
	}
	return executor.StreamWithContext(ctx, streams)
}

// sizes are the sizes of a terminal, until the streams end.
type sizes struct {
	ctx     context.Context //nolint:containedctx // The queue's method has none.
	changes <-chan api.TermSize
	begun   bool
}

// Next implements remotecommand.TerminalSizeQueue; nil is the last size. It is called by one goroutine.
func (s *sizes) Next() *remotecommand.TerminalSize {
	for {
		select {
		case size, more := <-s.changes:
			// virtual-kubelet sends empty sizes without end once the caller's stream of sizes has ended
			// (containerExecContext). A caller may send one at first, if its terminal has no size yet.
			empty := size == api.TermSize{}
			if !more || empty && s.begun {
				return nil
			}
			s.begun = true
			if !empty {
				return &remotecommand.TerminalSize{Width: size.Width, Height: size.Height}
			}
		case <-s.ctx.Done():
			return nil
		}
	}
}
