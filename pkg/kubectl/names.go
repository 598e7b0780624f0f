package kubectl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// Kind is a kind of objects in the arguments of a command, by the names that kubectl accepts for it.
type Kind struct {
	// noun is the word for one object in errors.
	noun string
	// group is the API group; "" for Kubernetes' core.
	group string
	// names are the singular, the plural and the short names.
	names []string
}

// Providers are ProviderClusters.
func Providers() Kind {
	return Kind{"provider", v1alpha1.GroupVersion().Group, []string{"providercluster", "providerclusters", "pcl"}}
}

// Policies are PlacementPolicies.
func Policies() Kind {
	return Kind{"policy", v1alpha1.GroupVersion().Group, []string{"placementpolicy", "placementpolicies", "pp"}}
}

// Consumers are the ForeignClusters of consumers.
func Consumers() Kind {
	return Kind{"consumer", liqov1beta1.GroupVersion.Group, []string{"foreigncluster", "foreignclusters"}}
}

// ConsumerClusters are ConsumerClusters, which have the ids of consumers as names.
func ConsumerClusters() Kind {
	return Kind{"consumer", v1alpha1.GroupVersion().Group, []string{"consumercluster", "consumerclusters", "ccl"}}
}

// Pods are pods.
func Pods() Kind { return Kind{"pod", "", []string{"pod", "pods", "po"}} }

// Name returns the name of an argument NAME or TYPE/NAME, such as providercluster.brokering.liqo.io/p1, which -o name prints.
// Types are not case-sensitive, and may have the group, with or without a version. An argument of another kind is an error.
func (k Kind) Name(argument string) (string, error) {
	kind, name, typed := strings.Cut(argument, "/")
	if !typed {
		return argument, nil
	}
	resource, group, _ := strings.Cut(strings.ToLower(kind), ".")
	if _, after, versioned := strings.Cut(group, "."); versioned && group != k.group {
		group = after // VERSION.GROUP
	}
	if name == "" || strings.Contains(name, "/") || !slices.Contains(k.names, resource) || group != "" && group != k.group {
		return "", fmt.Errorf("%q is not the name of a %s: use NAME or %s/NAME", argument, k.noun, k.names[0])
	}
	return name, nil
}

// Names returns the names of arguments, each once. It returns an error for each argument of another kind.
func (k Kind) Names(arguments []string) ([]string, error) {
	names := make([]string, 0, len(arguments))
	var failures []error
	for _, argument := range arguments {
		name, err := k.Name(argument)
		if err != nil {
			failures = append(failures, err)
		} else if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, errors.Join(failures...)
}

// ProviderNames returns the cluster ids of the providers, for the completion in a shell.
func (s *Session) ProviderNames(ctx context.Context) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind("ProviderClusterList"))
	return s.names(ctx, list)
}

// PolicyNames returns the names of the PlacementPolicies.
func (s *Session) PolicyNames(ctx context.Context) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind("PlacementPolicyList"))
	return s.names(ctx, list)
}

// ConsumerClusterNames returns the names of the ConsumerClusters.
func (s *Session) ConsumerClusterNames(ctx context.Context) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind("ConsumerClusterList"))
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
