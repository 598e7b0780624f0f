// Package kubectl implements the commands of "kubectl broker". They call the API server only, with the rights of the
// caller.
package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// pageSize is the limit of a list request, as in kubectl.
const pageSize = 500

// Session is one run of a command: the cluster and the streams.
type Session struct {
	Client client.Client
	// Namespace is the namespace of the kubeconfig or of --namespace.
	Namespace string
	// RequestTimeout is the deadline of each request; 0 for none.
	RequestTimeout time.Duration
	Now            func() time.Time
	// Ahead returns by how much the clock of the API server is ahead of the local one, after a request; false if unknown.
	// Nil if it is never known.
	Ahead func() (time.Duration, bool)
	// Out is the standard output; Err gets warnings.
	Out, Err io.Writer
}

// bounded returns the context of one request.
func (s *Session) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.RequestTimeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, s.RequestTimeout)
}

func (s *Session) get(ctx context.Context, key client.ObjectKey, into client.Object) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.Client.Get(ctx, key, into)
}

// list returns all objects of the kind of an empty list, sorted by namespace and name. It reads page by page.
func (s *Session) list(ctx context.Context, empty client.ObjectList, options ...client.ListOption) ([]client.Object, error) {
	var all []client.Object
	next := ""
	for {
		page, ok := empty.DeepCopyObject().(client.ObjectList)
		if !ok {
			return nil, errNoObject(empty)
		}
		if err := s.listPage(ctx, page, append(slices.Clone(options), client.Limit(pageSize), client.Continue(next))); err != nil {
			return nil, err
		}
		err := meta.EachListItem(page, func(item runtime.Object) error {
			o, ok := item.(client.Object)
			if !ok {
				return errNoObject(item)
			}
			all = append(all, o)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if next = page.GetContinue(); next == "" {
			slices.SortFunc(all, byName)
			return all, nil
		}
	}
}

func (s *Session) listPage(ctx context.Context, into client.ObjectList, options []client.ListOption) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.Client.List(ctx, into, options...)
}

func byName(a, b client.Object) int {
	return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}

// identify sets the kind, which typed clients leave out, and removes the managed fields, as kubectl does.
func (s *Session) identify(o client.Object) error {
	kind, err := s.Client.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	o.GetObjectKind().SetGroupVersionKind(kind)
	o.SetManagedFields(nil)
	return nil
}

func (s *Session) warn(text string) { fmt.Fprintln(s.Err, "warning: "+text) }

// NewMapper returns a mapper of the kinds that the commands read, so that no discovery request is needed.
func NewMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, known := range []struct {
		group schema.GroupVersion
		scope meta.RESTScope
		kinds []string
	}{
		{v1alpha1.GroupVersion(), meta.RESTScopeRoot, []string{"ProviderCluster", "PlacementPolicy", "ConsumerCluster"}},
		{corev1.SchemeGroupVersion, meta.RESTScopeRoot, []string{"Namespace", "Node", "PersistentVolume"}},
		{corev1.SchemeGroupVersion, meta.RESTScopeNamespace, []string{"Pod", "PersistentVolumeClaim", "Service"}},
		{appsv1.SchemeGroupVersion, meta.RESTScopeNamespace, []string{"Deployment"}},
		{coordinationv1.SchemeGroupVersion, meta.RESTScopeNamespace, []string{"Lease"}},
		{
			admissionv1.SchemeGroupVersion, meta.RESTScopeRoot,
			[]string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
		},
		{apiextensionsv1.SchemeGroupVersion, meta.RESTScopeRoot, []string{"CustomResourceDefinition"}},
		{authorizationv1.SchemeGroupVersion, meta.RESTScopeRoot, []string{"SelfSubjectAccessReview"}},
		{authenticationv1.SchemeGroupVersion, meta.RESTScopeRoot, []string{"SelfSubjectReview"}},
		{liqov1beta1.GroupVersion, meta.RESTScopeRoot, []string{"ForeignCluster"}},
		{authv1beta1.GroupVersion, meta.RESTScopeNamespace, []string{"Identity"}},
		{
			offloadingv1beta1.SchemeGroupVersion, meta.RESTScopeNamespace,
			[]string{"VirtualNode", "NamespaceMap", "VkOptionsTemplate"},
		},
	} {
		for _, kind := range known.kinds {
			mapper.Add(known.group.WithKind(kind), known.scope)
		}
	}
	return mapper
}
