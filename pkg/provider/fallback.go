package provider

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	offloadingclient "github.com/liqotech/liqo/pkg/client/clientset/versioned/typed/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
)

// mappings tells which namespaces are offloaded to the remote cluster.
type mappings struct {
	maps offloadingclient.NamespaceMapInterface
	// selector is that of the NamespaceMaps by which Liqo goes (namespacemap.NewHandler).
	selector string
}

func newMappings(cfg *Config, clients Clients) mappings {
	return mappings{
		maps:     clients.LocalLiqo.OffloadingV1beta1().NamespaceMaps(cfg.TenantNamespace),
		selector: labels.Set{consts.RemoteClusterID: string(cfg.ForeignCluster)}.String(),
	}
}

// has asks the API server rather than a cache: the pod was seen by another watch, and whoever sent it here may have
// done so at the moment when the namespace was mapped.
func (m mappings) has(ctx context.Context, namespace string) (bool, error) {
	list, err := m.maps.List(ctx, metav1.ListOptions{LabelSelector: m.selector})
	if err != nil {
		return false, fmt.Errorf("whether namespace %s is offloaded: %w", namespace, err)
	}
	for i := range list.Items {
		if list.Items[i].Status.CurrentMapping[namespace].Phase == offloadingv1beta1.MappingAccepted {
			return true, nil
		}
	}
	return false, nil
}

// unmappedFallback is a fallback reflector that gets a pod only when its namespace is known not to be offloaded.
//
// Liqo gives its own every pod of a namespace for which StartNamespace was not called, as soon as the reflection has
// started. But that is too soon: its NamespaceMap handler waits, when it starts, until the informer has the map
// (namespacemap.Handler.Start), and not until its event handler has gone through it (onAddNamespaceMap), which calls
// StartNamespace for one namespace after the other. A restart with many namespaces would meanwhile take pods that run
// for pods that cannot: Liqo makes them Failed, deletes those that are terminating before their remote pods have ended,
// and the broker, told of a refusal, moves them.
//
// A pod of a namespace that is offloaded is tried again until its namespace is started; StartNamespace enqueues it too.
type unmappedFallback struct {
	manager.FallbackReflector
	mappings mappings
}

func (f unmappedFallback) Handle(ctx context.Context, pod types.NamespacedName) error {
	mapped, err := f.mappings.has(ctx, pod.Namespace)
	if err != nil {
		return err
	}
	if mapped {
		return errNotReady
	}
	return f.FallbackReflector.Handle(ctx, pod)
}
