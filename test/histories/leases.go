package histories

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clientset is the part of client-go's clientset of a server that the broker uses. Leases, which are most of the requests
// by it, are neither encoded nor sent by HTTP, but their requests take as long, fail alike and are recorded alike.
type clientset struct {
	kubernetes.Interface // Nil: the methods that are not implemented below are never called.

	core   corev1client.CoreV1Interface
	about  discovery.DiscoveryInterface
	leases leaseClients
}

func newClientset(config *rest.Config, leases leaseClients) (c clientset, err error) {
	c.leases = leases
	if c.core, err = corev1client.NewForConfig(config); err != nil {
		return c, err
	}
	c.about, err = discovery.NewDiscoveryClientForConfig(config)
	return c, err
}

// CoreV1 implements kubernetes.Interface.
func (c clientset) CoreV1() corev1client.CoreV1Interface { return c.core }

// Discovery implements kubernetes.Interface.
func (c clientset) Discovery() discovery.DiscoveryInterface { return c.about }

// CoordinationV1 implements kubernetes.Interface.
func (c clientset) CoordinationV1() coordinationv1client.CoordinationV1Interface { return c.leases }

// leaseClients has the clients of leases at a server. It implements coordinationv1client.LeasesGetter.
type leaseClients struct {
	coordinationv1client.CoordinationV1Interface // Nil: the methods that are not implemented below are never called.

	live live
	// timeout is how long a request may take; 0 means that the caller limits it.
	timeout time.Duration
	// may rejects writes; nil if there is no such check.
	may func() error
}

// Leases implements coordinationv1client.LeasesGetter.
func (c leaseClients) Leases(namespace string) coordinationv1client.LeaseInterface {
	return leasesIn{leaseClients: c, namespace: namespace}
}

// leasesIn is the client of the leases in a namespace.
type leasesIn struct {
	coordinationv1client.LeaseInterface // Nil: the methods that are not implemented below are never called.
	leaseClients

	namespace string
}

// Get implements coordinationv1client.LeaseInterface.
func (c leasesIn) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return c.request(ctx, http.MethodGet, name, func() (client.Object, error) {
		return c.live.server.find(typeOf[coordinationv1.Lease](), types.NamespacedName{Namespace: c.namespace, Name: name})
	})
}

// Create implements coordinationv1client.LeaseInterface.
func (c leasesIn) Create(ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return c.request(ctx, http.MethodPost, "", func() (client.Object, error) {
		created := *lease
		return &created, c.live.server.create(c.live.process.name, &created)
	})
}

// Update implements coordinationv1client.LeaseInterface.
func (c leasesIn) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return c.request(ctx, http.MethodPut, lease.Name, func() (client.Object, error) {
		fresh := *lease
		return c.live.server.replace(c.live.process.name, &fresh, false)
	})
}

// request sends a request about a lease, with the name that it would have by HTTP. The answer shares all that the
// stored lease refers to: client-go replaces the spec of a lease, and changes nothing in it.
func (c leasesIn) request(ctx context.Context, method, name string, do func() (client.Object, error)) (*coordinationv1.Lease, error) {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	writes := method != http.MethodGet
	if writes && c.may != nil {
		if err := c.may(); err != nil {
			return nil, err
		}
	}
	path := "/apis/coordination.k8s.io/v1/namespaces/" + c.namespace + "/leases"
	if name != "" {
		path += "/" + name
	}
	l := c.live
	noted := requestOf(l.process, strings.ToLower(method), reflect.TypeFor[*coordinationv1.Lease](),
		types.NamespacedName{Namespace: c.namespace, Name: name})
	noted.Deadline, _ = ctx.Deadline()
	defer l.server.note(noted)
	var answer coordinationv1.Lease
	err := l.process.request(ctx, l.weather, method+" "+path, writes, func() error {
		found, err := do()
		if err != nil {
			return err
		}
		answer = *found.(*coordinationv1.Lease)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &answer, nil
}
