package kubelet

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"

	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/workload"

	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
)

// echo answers exec with its standard input.
type echo struct{ workload.PodHandler }

func (echo) Exec(_ context.Context, _, _, _ string, _ []string, attach api.AttachIO) error {
	_, err := io.Copy(attach.Stdout(), attach.Stdin())
	return err
}

// Clients since Kubernetes v1.30 ask for v5.channel.k8s.io first.
func TestExecOfAClientThatKnowsANewerProtocol(t *testing.T) {
	server := httptest.NewServer(knownProtocols(kubeletapi.NewHandler(logr.Discard(), echo{}, nil)))
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL + "/exec/ns/pod/main?command=cat&input=1&output=1")
	require.NoError(t, err)
	exec := func(protocols ...string) (string, error) {
		transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
		require.NoError(t, err)
		executor, err := remotecommand.NewSPDYExecutorForProtocols(transport, upgrader, http.MethodPost, target, protocols...)
		require.NoError(t, err)
		var out bytes.Buffer
		err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("said"), Stdout: &out})
		return out.String(), err
	}
	for name, protocols := range map[string][]string{
		"of today":  {"v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io"},
		"one line":  {"v5.channel.k8s.io, v4.channel.k8s.io"},
		"of v0.9.4": {"v4.channel.k8s.io", "v3.channel.k8s.io"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec(protocols...)
			require.NoError(t, err)
			assert.Equal(t, "said", out)
		})
	}
	t.Run("no protocol in common", func(t *testing.T) {
		_, err := exec("v5.channel.k8s.io")
		require.Error(t, err) // The text is not shown: the client expects a Status.
	})
}
