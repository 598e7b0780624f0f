package retry

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	offloadingclient "github.com/liqotech/liqo/pkg/client/clientset/versioned/typed/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
)

// Mappings reports which namespaces are offloaded to the remote cluster.
type Mappings struct {
	maps offloadingclient.NamespaceMapInterface
	// selector is the label selector with which Liqo selects NamespaceMaps (namespacemap.NewHandler).
	selector string
}

// NewMappings returns the Mappings of a remote cluster; maps are the NamespaceMaps of its tenant namespace.
func NewMappings(maps offloadingclient.NamespaceMapInterface, remote liqov1beta1.ClusterID) Mappings {
	return Mappings{maps: maps, selector: labels.Set{consts.RemoteClusterID: string(remote)}.String()}
}

// has asks the API server instead of a cache: the pod came from another watch, and may have been bound at the moment
// when its namespace was mapped.
func (m Mappings) has(ctx context.Context, namespace string) (bool, error) {
	list, err := m.maps.List(ctx, metav1.ListOptions{LabelSelector: m.selector})
	if err != nil {
		return false, fmt.Errorf("checking whether namespace %s is offloaded: %w", namespace, err)
	}
	for i := range list.Items {
		if list.Items[i].Status.CurrentMapping[namespace].Phase == offloadingv1beta1.MappingAccepted {
			return true, nil
		}
	}
	return false, nil
}

// Unmapped returns a fallback reflector that handles a pod only if its namespace is known not to be offloaded.
//
// As soon as the reflection has started, Liqo passes every pod of a namespace to its fallback reflector if
// StartNamespace was not called for the namespace. That is too early: at start, its NamespaceMap handler only waits
// until the informer has the map (namespacemap.Handler.Start), and not until its event handler has processed it
// (onAddNamespaceMap), which calls StartNamespace for one namespace after the other. After a restart with many
// namespaces, running pods would be treated as pods that cannot run: Liqo marks them Failed and deletes the terminating
// ones before their remote pods have ended, and the broker moves the pods that are reported as rejected.
//
// A pod of an offloaded namespace is retried until its namespace is started. StartNamespace enqueues it too.
func (m Mappings) Unmapped(next manager.FallbackReflector) manager.FallbackReflector {
	return unmappedFallback{FallbackReflector: next, mappings: m}
}

type unmappedFallback struct {
	manager.FallbackReflector
	mappings Mappings
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
