package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
)

// secretTTL is how long a kubeconfig is used before its Secret is read again. Liqo renews the client certificate in it
// well before it ends.
const secretTTL = time.Minute

// providerQPS and providerBurst are client-go's limits of the requests with one identity to one provider: Liqo sets none,
// and client-go's default of 5 a second would hold up a drain.
const (
	providerQPS   = 50
	providerBurst = 100
)

// connection is the way to one provider with the identity of one VirtualNode.
type connection struct {
	virtualNode string
	config      *rest.Config
	kube        kubernetes.Interface
	liqo        liqoclient.Interface
	metrics     metricsclient.Interface

	secretVersion string
	read          time.Time
}

// connections keeps one connection for each VirtualNode.
type connections struct {
	home       kubernetes.Interface
	identities identitymanager.IdentityReader
	timeout    time.Duration
	userAgent  string

	mu sync.Mutex
	// byVirtualNode by name; guarded by mu.
	byVirtualNode map[string]*connection
}

func newConnections(home kubernetes.Interface, identities identitymanager.IdentityReader, timeout time.Duration,
	userAgent string,
) *connections {
	return &connections{
		home: home, identities: identities, timeout: timeout, userAgent: userAgent, byVirtualNode: map[string]*connection{},
	}
}

// get is the connection of a VirtualNode; nil if there is none yet.
func (c *connections) get(virtualNode string) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byVirtualNode[virtualNode]
}

func (c *connections) forget(virtualNode string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byVirtualNode, virtualNode)
}

// refresh reads the Secret of a VirtualNode, unless it was read lately, and connects anew when it has changed.
func (c *connections) refresh(ctx context.Context, vn *offloadingv1beta1.VirtualNode, now time.Time) error {
	known := c.get(vn.Name)
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
	if err != nil {
		return fmt.Errorf("kubeconfig of VirtualNode %s, Secret %s/%s: %w", vn.Name, secret.Namespace, secret.Name, err)
	}
	fresh.read = now
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byVirtualNode[vn.Name] = fresh
	return nil
}

func (c *connections) connect(vn *offloadingv1beta1.VirtualNode, secret *corev1.Secret) (*connection, error) {
	config, err := c.identities.GetConfigFromSecret(vn.Spec.ClusterID, secret)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst, config.UserAgent = providerQPS, providerBurst, c.userAgent
	fresh := &connection{virtualNode: vn.Name, config: config, secretVersion: secret.ResourceVersion}
	if fresh.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if fresh.liqo, err = liqoclient.NewForConfig(config); err != nil {
		return nil, err
	}
	fresh.metrics, err = metricsclient.NewForConfig(config)
	return fresh, err
}

// probe asks the provider's API server whether it is ready, its etcd included, and says how long it took to answer.
func (c *connection) probe(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	_, err := c.kube.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return time.Since(began), err
}

// errStillThere says that a provider has not yet removed what it runs of a pod.
var errStillThere = errors.New("the pod is still there")

// gone answers nil when the provider has neither the ShadowPod nor the pod that a VirtualNode forwarded, errStillThere if
// it has one of them, and any other error when it cannot say. What another VirtualNode forwarded is none of its business.
func (c *connection) gone(ctx context.Context, virtualNode, namespace, name string) error {
	shadow, err := c.liqo.OffloadingV1beta1().ShadowPods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case kerrors.IsNotFound(err):
	case err != nil:
		return err
	case shadow.Labels[forge.LiqoOriginClusterNodeName] == virtualNode:
		return errStillThere
	}
	pod, err := c.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case kerrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case pod.Labels[forge.LiqoOriginClusterNodeName] == virtualNode:
		return errStillThere
	}
	return nil
}

// remove deletes the ShadowPod of a VirtualNode that is gone, with the virtual kubelet that would have.
func (c *connection) remove(ctx context.Context, virtualNode, namespace, name string) error {
	shadows := c.liqo.OffloadingV1beta1().ShadowPods(namespace)
	shadow, err := shadows.Get(ctx, name, metav1.GetOptions{})
	if kerrors.IsNotFound(err) || (err == nil && shadow.Labels[forge.LiqoOriginClusterNodeName] != virtualNode) {
		return nil
	}
	if err != nil {
		return err
	}
	err = shadows.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &shadow.UID}})
	if kerrors.IsNotFound(err) {
		return nil
	}
	return err
}

// running lists the names of the pods in a remote namespace that this VirtualNode forwarded.
func (c *connection) running(ctx context.Context, namespace string) ([]string, error) {
	list, err := c.liqo.OffloadingV1beta1().ShadowPods(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: forge.LiqoOriginClusterNodeName + "=" + c.virtualNode,
	})
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}
