package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// plan chooses the ports and arguments of every component.
func (c *Cluster) plan() error {
	var port [5]int
	for i := range port {
		var err error
		if port[i], err = c.cfg.Ports.Free(); err != nil {
			return err
		}
	}
	c.apiPort, c.etcdPort = port[0], port[1]
	etcd, peer := local("http", port[1]), local("http", port[2])
	file := func(name string) string { return filepath.Join(c.cfg.Dir, name) }
	kubeconfig := "--kubeconfig=" + c.Kubeconfig()

	c.components = []*component{
		{name: "etcd", ready: dial(port[1]), args: []string{
			"--data-dir=" + file("etcd"), "--listen-client-url=" + etcd, "--listen-peer-url=" + peer,
		}},
		{name: "kube-apiserver", ready: c.probe(port[0], "/readyz"), args: []string{
			"--etcd-servers=" + etcd,
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port[0]), "--advertise-address=127.0.0.1",
			"--service-cluster-ip-range=" + c.cfg.ServiceCIDR,
			"--client-ca-file=" + file("ca.crt"),
			"--tls-cert-file=" + file("apiserver.crt"), "--tls-private-key-file=" + file("apiserver.key"),
			"--kubelet-client-certificate=" + file("kubelet-client.crt"), "--kubelet-client-key=" + file("kubelet-client.key"),
			"--kubelet-certificate-authority=" + file("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
			"--requestheader-client-ca-file=" + file("ca.crt"), "--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + file("front-proxy.crt"), "--proxy-client-key-file=" + file("front-proxy.key"),
			"--service-account-key-file=" + file("sa.pub"), "--service-account-signing-key-file=" + file("sa.key"),
			"--service-account-issuer=https://kubernetes.default.svc",
			"--authorization-mode=Node,RBAC", "--allow-privileged=true", "--enable-priority-and-fairness=false",
			"--endpoint-reconciler-type=none", "--profiling=false",
		}},
		{name: "kube-controller-manager", ready: c.probe(port[3], "/healthz"), args: []string{
			kubeconfig, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port[3]),
			"--service-account-private-key-file=" + file("sa.key"), "--root-ca-file=" + file("ca.crt"),
			"--cluster-signing-cert-file=" + file("ca.crt"), "--cluster-signing-key-file=" + file("ca.key"),
			"--use-service-account-credentials=true", "--leader-elect=false",
			"--authentication-skip-lookup=true", "--kube-api-qps=300", "--kube-api-burst=500", "--profiling=false",
		}},
		{name: "kube-scheduler", ready: c.probe(port[4], "/healthz"), args: []string{
			kubeconfig, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port[4]),
			"--leader-elect=false", "--authentication-skip-lookup=true", "--kube-api-qps=300", "--kube-api-burst=500", "--profiling=false",
		}},
	}
	audit, err := c.auditArgs()
	if err != nil {
		return err
	}
	egress, err := c.egressArgs()
	if err != nil {
		return err
	}
	server := c.components[1]
	server.args = slices.Concat(server.args, audit, egress, c.cfg.APIServerArgs)
	if grace := c.cfg.NodeGracePeriod; grace > 0 {
		manager := c.components[2]
		manager.args = append(manager.args, "--node-monitor-grace-period="+grace.String())
	}
	return nil
}

// egressArgs returns the API server's arguments for a proxy to the network of the cluster; none without one.
func (c *Cluster) egressArgs() ([]string, error) {
	if c.cfg.Egress == "" {
		return nil, nil
	}
	file := filepath.Join(c.cfg.Dir, "egress.yaml")
	text := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %q}}}
`, c.cfg.Egress)
	return []string{"--egress-selector-config-file=" + file}, os.WriteFile(file, []byte(text), 0o600)
}

// serviceIP returns the ClusterIP of the Service "kubernetes": the first of the range.
func (c *Cluster) serviceIP() string {
	return netip.MustParsePrefix(c.cfg.ServiceCIDR).Masked().Addr().Next().String()
}

func local(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }

func dial(port int) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// probe requests an HTTPS endpoint of the component. Only the API server's certificate is verified; the other two have
// self-signed ones.
func (c *Cluster) probe(port int, path string) func(context.Context) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.ca.CertPEM)
	client := &http.Client{
		Timeout: 2 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: roots, InsecureSkipVerify: port != c.apiPort},
		},
	}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, local("https", port)+path, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", path, resp.Status)
		}
		return nil
	}
}
