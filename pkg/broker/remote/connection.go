package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// secretTTL is how long a kubeconfig is used before its Secret is read again. Liqo renews the client certificate in it
// well before it expires.
const secretTTL = time.Minute

// providerQPS and providerBurst are client-go's limits of the requests with one identity to one provider. Liqo sets
// none; client-go's default of 5 a second would delay a drain.
const (
	providerQPS   = 50
	providerBurst = 100
)

// Connection has the clients of one provider, with the identity of one VirtualNode.
type Connection struct {
	// Provider is the cluster that the VirtualNode stands for.
	Provider    string
	VirtualNode string
	Config      *rest.Config
	Kube        kubernetes.Interface
	Liqo        liqoclient.Interface
	Metrics     metricsclient.Interface
	// Probes is for probes only: they wait neither for the rate limit nor for a connection of other requests.
	Probes rest.Interface

	secretVersion string
	read          time.Time
}

// Place is the VirtualNode whose identity the connection has.
func (c *Connection) Place() scheduler.Place {
	return scheduler.Place{Provider: c.Provider, VirtualNode: c.VirtualNode}
}

// PlaceOf returns the key of a VirtualNode.
func PlaceOf(vn *offloadingv1beta1.VirtualNode) scheduler.Place {
	return scheduler.Place{Provider: string(vn.Spec.ClusterID), VirtualNode: vn.Name}
}

// Connections keeps one Connection for each VirtualNode. It is safe for concurrent use.
type Connections struct {
	home       kubernetes.Interface
	identities identitymanager.IdentityReader
	userAgent  string
	proxies    []string

	mu sync.Mutex
	// byPlace are by VirtualNode, of which two providers may have one of a name; guarded by mu.
	byPlace map[scheduler.Place]*Connection
	// refused has, by VirtualNode, why its kubeconfig is not used; guarded by mu.
	refused map[scheduler.Place]string
}

// NewConnections reads the kubeconfigs from Secrets of the home cluster. Providers see the user agent. The proxies are
// those that kubeconfigs may name (untrusted.Config).
func NewConnections(
	home kubernetes.Interface, identities identitymanager.IdentityReader, userAgent string, proxies ...string,
) *Connections {
	return &Connections{
		home: home, identities: identities, userAgent: userAgent, proxies: proxies,
		byPlace: map[scheduler.Place]*Connection{}, refused: map[scheduler.Place]string{},
	}
}

// Get returns the connection of a VirtualNode; nil if there is none yet.
func (c *Connections) Get(at scheduler.Place) *Connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byPlace[at]
}

// OfProvider returns the connection to a provider of its first VirtualNode by name; nil if there is none.
func (c *Connections) OfProvider(provider string) *Connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first *Connection
	for _, at := range c.byPlace {
		if at.Provider == provider && (first == nil || at.VirtualNode < first.VirtualNode) {
			first = at
		}
	}
	return first
}

// Set sets the connection of its VirtualNode.
func (c *Connections) Set(connection *Connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byPlace[connection.Place()] = connection
	delete(c.refused, connection.Place())
}

// Remove forgets the connection of a VirtualNode.
func (c *Connections) Remove(at scheduler.Place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byPlace, at)
	delete(c.refused, at)
}

// Refused returns why the kubeconfig of a VirtualNode is not used; "" if it is, or if there is none.
func (c *Connections) Refused(at scheduler.Place) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[at]
}

// refuse has a VirtualNode no connection. One of an earlier kubeconfig is not used either.
func (c *Connections) refuse(at scheduler.Place, why *untrusted.AddressError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byPlace, at)
	c.refused[at] = why.Error()
}

// RemoveOf forgets the connections of all VirtualNodes of a provider.
func (c *Connections) RemoveOf(provider string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.byPlace, func(at scheduler.Place, _ *Connection) bool { return at.Provider == provider })
	maps.DeleteFunc(c.refused, func(at scheduler.Place, _ string) bool { return at.Provider == provider })
}

// Refresh reads the kubeconfig of a VirtualNode, unless it was read less than a minute ago, and connects again if it
// has changed.
func (c *Connections) Refresh(ctx context.Context, vn *offloadingv1beta1.VirtualNode, now time.Time) error {
	at := PlaceOf(vn)
	known := c.Get(at)
	if known != nil && now.Sub(known.read) < secretTTL {
		return nil
	}
	if vn.Spec.KubeconfigSecretRef == nil {
		return fmt.Errorf("VirtualNode %s/%s has no kubeconfigSecretRef", vn.Namespace, vn.Name)
	}
	secret, err := c.home.CoreV1().Secrets(vn.Namespace).Get(ctx, vn.Spec.KubeconfigSecretRef.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("kubeconfig of VirtualNode %s: %w", vn.Name, err)
	}
	if known != nil && known.secretVersion == secret.ResourceVersion {
		c.mu.Lock()
		known.read = now
		c.mu.Unlock()
		return nil
	}
	fresh, err := c.connect(vn, secret)
	if why := (*untrusted.AddressError)(nil); errors.As(err, &why) {
		c.refuse(at, why)
	}
	if err != nil {
		return fmt.Errorf("kubeconfig of VirtualNode %s, Secret %s/%s: %w", vn.Name, secret.Namespace, secret.Name, err)
	}
	fresh.read = now
	c.Set(fresh)
	return nil
}

func (c *Connections) connect(vn *offloadingv1beta1.VirtualNode, secret *corev1.Secret) (*Connection, error) {
	config, err := untrusted.Config(secret, c.proxies, func(secret *corev1.Secret) (*rest.Config, error) {
		return c.identities.GetConfigFromSecret(vn.Spec.ClusterID, secret)
	})
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst, config.UserAgent = providerQPS, providerBurst, c.userAgent
	untrusted.Wrap(config)
	fresh := &Connection{Provider: string(vn.Spec.ClusterID), VirtualNode: vn.Name, Config: config, secretVersion: secret.ResourceVersion}
	if fresh.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if fresh.Liqo, err = liqoclient.NewForConfig(config); err != nil {
		return nil, err
	}
	if fresh.Metrics, err = metricsclient.NewForConfig(config); err != nil {
		return nil, err
	}
	probing := rest.CopyConfig(config)
	probing.QPS = -1
	probing.NextProtos = []string{"http/1.1"} // Of another pool of connections than the others', which are HTTP/2.
	probes, err := discovery.NewDiscoveryClientForConfig(probing)
	if err != nil {
		return nil, err
	}
	fresh.Probes = probes.RESTClient()
	return fresh, nil
}

// Probe asks the provider's API server whether it is ready, including its etcd, and returns the round trip. A server
// that answers differently from kube-apiserver, such as a proxy with its own page, is not ready. Its text is not in the
// error. The error satisfies untrusted.Rejected, is an AnswerError, or there was no answer.
func (c *Connection) Probe(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	body, err := c.Probes.Get().AbsPath("/readyz").MaxRetries(0).DoRaw(ctx)
	took := time.Since(began)
	redirect, tooLong := (*untrusted.RedirectError)(nil), (*untrusted.TooLongError)(nil)
	switch status := kerrors.APIStatus(nil); {
	case errors.As(err, &status):
		return took, &AnswerError{problem: notReady(status.Status().Code, body), cause: err}
	case errors.As(err, &redirect), errors.As(err, &tooLong):
		return took, &AnswerError{problem: err}
	case err == nil && string(body) != "ok":
		return took, &AnswerError{problem: errors.New("/readyz does not answer ok")}
	}
	return took, err
}

// AnswerError is the error of a probe that was answered, but not as by an API server that is ready.
type AnswerError struct{ problem, cause error }

// Error implements error.
func (e *AnswerError) Error() string { return e.problem.Error() }

// Unwrap returns the error of the request, whose text the provider wrote; nil if there is none.
func (e *AnswerError) Unwrap() error { return e.cause }

// noPod is the name of a pod that need not exist: reading it requires a read of etcd, whereas a list may be answered
// without.
const noPod = "liqo-broker-probe"

// Reads returns nil if the provider's API server reads its etcd: it answers whether a pod exists in a remote namespace.
func (c *Connection) Reads(ctx context.Context, namespace string) error {
	result := c.Probes.Get().AbsPath("/api/v1/namespaces", namespace, "pods", noPod).MaxRetries(0).Do(ctx)
	switch err := result.Error(); {
	case kerrors.IsNotFound(err) && !kerrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return nil
	case err != nil:
		return err
	}
	var pod metav1.TypeMeta
	if body, err := result.Raw(); err != nil {
		return err
	} else if err := json.Unmarshal(body, &pod); err != nil || pod.Kind != "Pod" {
		return errors.New("the answer is not a Pod")
	}
	return nil
}

// failedCheck is a line of kube-apiserver's answer (k8s.io/apiserver/pkg/server/healthz).
var failedCheck = regexp.MustCompile(`(?m)^\[-]([A-Za-z0-9/_.-]{1,63}) failed: reason withheld$`)

// maxChecks is how many failed checks are named.
const maxChecks = 4

// notReady is the error of an answer of kube-apiserver, with the names of the checks that failed.
func notReady(code int32, body []byte) error {
	var failed []string
	for _, match := range failedCheck.FindAllSubmatch(body, maxChecks) {
		failed = append(failed, string(match[1]))
	}
	if len(failed) == 0 {
		return fmt.Errorf("/readyz answers with the status %d", code)
	}
	return fmt.Errorf("/readyz answers with the status %d, failed checks: %s", code, strings.Join(failed, ", "))
}
