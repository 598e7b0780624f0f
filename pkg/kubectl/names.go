package kubectl

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// ProviderNames returns the cluster ids of the providers, for the completion in a shell.
func (s *Session) ProviderNames(ctx context.Context) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind("ProviderClusterList"))
	return s.names(ctx, list)
}

// PodNames returns the pods of the session's namespace that are bound to the broker's node.
func (s *Session) PodNames(ctx context.Context, node string) ([]string, error) {
	return s.names(ctx, metadata("PodList"), client.InNamespace(s.Namespace), ofNode(node))
}

// NamespaceNames returns all namespaces.
func (s *Session) NamespaceNames(ctx context.Context) ([]string, error) {
	return s.names(ctx, metadata("NamespaceList"))
}

// ConsumerNames returns the cluster ids of the consumers that are peered with this cluster.
func (s *Session) ConsumerNames(ctx context.Context) ([]string, error) {
	clusters, err := s.list(ctx, &liqov1beta1.ForeignClusterList{})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, o := range clusters {
		if cluster, ok := o.(*liqov1beta1.ForeignCluster); ok && consumes(cluster.Status.Role) {
			ids = append(ids, cluster.Name)
		}
	}
	return ids, nil
}

func consumes(role liqov1beta1.RoleType) bool {
	return role == liqov1beta1.ConsumerRole || role == liqov1beta1.ConsumerAndProviderRole
}

func (s *Session) names(ctx context.Context, empty client.ObjectList, options ...client.ListOption) ([]string, error) {
	objects, err := s.list(ctx, empty, options...)
	names := make([]string, 0, len(objects))
	for _, o := range objects {
		names = append(names, o.GetName())
	}
	return names, err
}
