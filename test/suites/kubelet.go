package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	// kubeletTimeout bounds virtual-kubelet's suite.
	kubeletTimeout = 15 * time.Minute
	// kubeletNamespace is the offloaded namespace of its pods.
	kubeletNamespace = "virtual-kubelet"
)

// runKubelet runs virtual-kubelet's suite against the node of this side. A failed test is no error.
func (at place) runKubelet(ctx context.Context) (outcomes []outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	cluster := at.Cluster(sandbox.Broker)
	if err := cluster.Offload(ctx, kubeletNamespace); err != nil {
		return nil, err
	}
	kubeconfig, stop, err := proxyTo(cluster.Config, at.node)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	c := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-timeout="+kubeletTimeout.String(), "./suites/kubelet")
	c.Env = append(os.Environ(), "SUITE_KUBECONFIG="+kubeconfig, "SUITE_NODE="+at.node, "SUITE_NAMESPACE="+kubeletNamespace)
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(syscall.SIGTERM) }, 30*time.Second
	printed, ended := c.Output()
	if err := os.WriteFile(filepath.Join(at.logs, at.name+"-virtual-kubelet.log"), printed, 0o600); err != nil {
		return nil, err
	}
	if outcomes, err = readEvents(printed); err != nil {
		return nil, err
	}
	if len(outcomes) == 0 {
		return nil, fmt.Errorf("virtual-kubelet's suite ran no test (%w)", ended)
	}
	at.say("%s, virtual-kubelet: %s", at.name, summary(outcomes))
	return outcomes, nil
}

// testEvent is an event of go test -json.
type testEvent struct{ Action, Test, Output string }

// readEvents returns the outcome of each test of the suite; why one failed is the last line that it printed.
func readEvents(printed []byte) ([]outcome, error) {
	var outcomes []outcome
	last := map[string]string{}
	results := map[string]string{"pass": resultPassed, "fail": resultFailed, "skip": resultSkipped}
	lines := bufio.NewScanner(bytes.NewReader(printed))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e testEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // What is not of the test, such as a warning of the Go command.
		}
		_, name, below := strings.Cut(e.Test, "/")
		if !below {
			continue
		}
		if text := strings.TrimSpace(e.Output); e.Action == "output" && text != "" && !strings.HasPrefix(text, "---") {
			last[name] = sourceLine.ReplaceAllString(text, "")
		}
		if r := results[e.Action]; r != "" {
			o := outcome{Test: name, Result: r}
			if r == resultFailed {
				o.Why = firstLines(last[name])
			}
			outcomes = append(outcomes, o)
		}
	}
	return outcomes, lines.Err()
}

// sourceLine is how testing begins what a test prints.
var sourceLine = regexp.MustCompile(`^\w+\.go:\d+: `)

// proxyTo serves the API of a cluster on loopback, and returns a kubeconfig for it. The suite asks for statistics by the proxy of a
// Pod that has the name of the Node, since virtual-kubelet's own pipeline runs it in such a Pod; this asks the Node instead.
func proxyTo(config *rest.Config, node string) (kubeconfig string, stop func() error, err error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return "", nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return "", nil, err
	}
	pod := regexp.MustCompile(`^/api/v1/namespaces/[^/]+/pods/https:` + regexp.QuoteMeta(node) + `:10250/proxy`)
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.URL.Path = pod.ReplaceAllString(r.In.URL.Path, "/api/v1/nodes/"+node+"/proxy")
	}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	directory, err := os.MkdirTemp("", "suites-")
	if err == nil {
		kubeconfig = filepath.Join(directory, "kubeconfig")
		err = clientcmd.WriteToFile(plainKubeconfig(ln.Addr()), kubeconfig)
	}
	stop = func() error {
		err := errors.Join(server.Close(), os.RemoveAll(directory))
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}
	if err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return kubeconfig, stop, nil
}

func plainKubeconfig(address net.Addr) clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: "http://" + address.String()}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	config.CurrentContext = "proxy"
	return *config
}
