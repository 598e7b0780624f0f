package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/test/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// kubeletClient is the user as which an API server calls kubelets (test/sandbox/internal/controlplane).
const kubeletClient = "kube-apiserver-kubelet-client"

// api is the API server of a cluster as a suite sees it. kube-apiserver does not proxy requests to the kubelet of a
// Node with a loopback address (isProxyableHostname in pkg/registry/core/node/strategy.go of Kubernetes), and all Nodes
// of the sandbox have one. So api sends these requests directly to the kubelet, with the credentials of the API server.
type api struct {
	server                            string
	serverTransport, kubeletTransport http.RoundTripper
	// kubelet returns the URL of a Node's kubelet. It is nil in a sandbox with containers, whose Nodes have other addresses.
	kubelet func(ctx context.Context, node string) (string, error)
	// namespace is called with each namespace that a suite creates, before the suite gets the answer; nil for no call.
	namespace func(ctx context.Context, name string) error
}

// apiOf returns the API of a cluster.
func apiOf(cluster *sandbox.Cluster) (a api, err error) {
	config := rest.CopyConfig(cluster.Config)
	config.NextProtos = []string{"http/1.1"} // HTTP/2 does not support upgrades of connections.
	if a.serverTransport, err = rest.TransportFor(config); err != nil {
		return api{}, err
	}
	user, err := cluster.ClientConfig(kubeletClient)
	if err != nil {
		return api{}, err
	}
	if a.kubeletTransport, err = rest.TransportFor(kubeletapi.Caller(user)); err != nil {
		return api{}, err
	}
	a.server = config.Host
	a.kubelet = func(ctx context.Context, name string) (string, error) {
		node, err := cluster.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return kubeletapi.URL(node), nil
	}
	return a, nil
}

// ofKubelet matches the paths by which a suite calls a Node's kubelet: through the proxy of the Node, or of a Pod with
// the name of the Node, because virtual-kubelet's own pipeline runs it in such a Pod.
var ofKubelet = regexp.MustCompile(`^/api/v1/(?:nodes/([^/:]+)|namespaces/[^/]+/pods/https:([^/:]+):10250)/proxy(/.*)$`)

func (a api) handler() (http.Handler, error) {
	target, err := url.Parse(a.server)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Transport: a, FlushInterval: -1, ModifyResponse: a.answered,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}, nil
}

// RoundTrip implements http.RoundTripper.
func (a api) RoundTrip(r *http.Request) (*http.Response, error) {
	found := ofKubelet.FindStringSubmatch(r.URL.Path)
	if found == nil || a.kubelet == nil {
		return a.serverTransport.RoundTrip(r)
	}
	address, err := a.kubelet(r.Context(), found[1]+found[2])
	if err != nil {
		return nil, err
	}
	kubelet, err := url.Parse(address + found[3])
	if err != nil {
		return nil, err
	}
	asked := r.Clone(r.Context())
	kubelet.RawQuery = r.URL.RawQuery
	asked.URL, asked.Host = kubelet, ""
	// Redirects of the kubelet lead back here, as when kube-apiserver proxies the request.
	rewriting := &proxy.Transport{PathPrepend: strings.TrimSuffix(r.URL.Path, found[3]), RoundTripper: a.kubeletTransport}
	return rewriting.RoundTrip(asked)
}

// answered calls a.namespace for a namespace that a suite has created.
func (a api) answered(r *http.Response) error {
	if a.namespace == nil || r.Request.Method != http.MethodPost || r.Request.URL.Path != "/api/v1/namespaces" ||
		r.StatusCode != http.StatusCreated {
		return nil
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body.Close()
	r.Body = io.NopCloser(bytes.NewReader(text))
	var made metav1.PartialObjectMetadata
	if err := json.Unmarshal(text, &made); err != nil {
		return fmt.Errorf("a namespace that was made: %w", err)
	}
	return a.namespace(r.Request.Context(), made.Name)
}

// serve serves the API as the administrator until closed is called, and returns a kubeconfig for it, in a directory
// that closed removes.
func (a api) serve() (kubeconfig string, closed func(), err error) {
	handler, err := a.handler()
	if err != nil {
		return "", nil, err
	}
	directory, err := os.MkdirTemp("", "suites-")
	if err != nil {
		return "", nil, err
	}
	server := httptest.NewServer(handler)
	closed = func() {
		server.Close()
		_ = os.RemoveAll(directory)
	}
	kubeconfig = filepath.Join(directory, "kubeconfig")
	err = os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: it,
clusters: [{name: it, cluster: {server: %q}}], contexts: [{name: it, context: {cluster: it}}]}`, server.URL), 0o600)
	if err != nil {
		closed()
		return "", nil, err
	}
	return kubeconfig, closed, nil
}
