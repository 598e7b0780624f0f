package nodeagent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubelet/pkg/cri/streaming/portforward"
)

const (
	// forwardIdle is how long a forwarded port may be unused, the kubelet's default.
	forwardIdle = 4 * time.Hour
	// forwardBegin is how long the creation of a connection's streams may take.
	forwardBegin = 30 * time.Second
)

// listen opens the port of the kubelet API, of which the agent serves port-forward and logs.
func (a *Agent) listen() (port int32, err error) {
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(a.cfg.ClientCA) {
		return 0, errors.New("node agent: no CA of clients")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	a.listener = tls.NewListener(ln, &tls.Config{
		Certificates: []tls.Certificate{a.cfg.Certificate}, MinVersion: tls.VersionTLS12,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities,
	})
	return int32(ln.Addr().(*net.TCPAddr).Port), nil
}

// routes returns the handlers of the kubelet API.
func (a *Agent) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", a.serveLogs)
	mux.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		options, err := portforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, r, forwarder{a, r.PathValue("namespace")}, r.PathValue("pod"), "", options,
			forwardIdle, forwardBegin, portforward.SupportedProtocols)
	})
	return mux
}

// serveLogs answers with a container's output so far.
func (a *Agent) serveLogs(w http.ResponseWriter, r *http.Request) {
	file := a.logOf(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"))
	if file == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	http.ServeFile(w, r, file)
}

// logOf returns the log of a container; empty if the container does not exist.
func (a *Agent) logOf(namespace, name, containerName string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.pods {
		if w.pod.Namespace == namespace && w.pod.Name == name &&
			slices.ContainsFunc(w.containers, func(c *container) bool { return c.spec.Name == containerName }) {
			return w.logFile(containerName)
		}
	}
	return ""
}

// serve serves the kubelet API until ctx ends.
func (a *Agent) serve(ctx context.Context) {
	server := &http.Server{Handler: a.routes(), ReadHeaderTimeout: callTimeout}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	_ = server.Serve(a.listener) // Until it is closed.
}

// forwarder connects streams with the ports of processes. It maps a port of the pod to the port that its process has
// here.
type forwarder struct {
	agent     *Agent
	namespace string
}

// PortForward implements portforward.PortForwarder.
func (f forwarder) PortForward(ctx context.Context, name string, _ types.UID, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	network, here, err := f.agent.portHere(f.namespace, name, port)
	if err != nil {
		return err
	}
	dialing, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := network.dial(dialing, here)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _, _ = conn.Close(), stream.Close() })()
	var both errgroup.Group
	both.Go(func() error {
		_, _ = io.Copy(conn, stream) // Either end may close, which ends both copies.
		return conn.(*net.TCPConn).CloseWrite()
	})
	both.Go(func() error {
		_, _ = io.Copy(stream, conn)
		return stream.Close()
	})
	_ = both.Wait()
	return nil
}

// portHere returns the network and the port of a pod's container port.
func (a *Agent) portHere(namespace, name string, port int32) (*podNetwork, int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.pods {
		if w.pod.Namespace != namespace || w.pod.Name != name {
			continue
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, c := range w.containers {
			if here, err := portNumber(c, intstr.FromInt32(port)); err == nil && c.process != nil && c.process.Running() {
				return w.network, here, nil
			}
		}
		return nil, 0, fmt.Errorf("pod %s/%s does not run", namespace, name)
	}
	return nil, 0, fmt.Errorf("pod %s/%s is not of node %s", namespace, name, a.cfg.NodeName)
}
