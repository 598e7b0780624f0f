package caller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// ErrStranger says that something needs a caller who is known.
var ErrStranger = errors.New("this needs a bearer token, or a client certificate of the cluster's CA")

// NeedKnown returns an ErrStranger unless a caller is known.
func (c *Caller) NeedKnown() error {
	switch {
	case c.Known():
		return nil
	case c.Certificate != "":
		return fmt.Errorf("%w; the client certificate that you showed is not accepted: %s", ErrStranger, c.Certificate)
	}
	return ErrStranger
}

// ForbiddenError says what a caller may not do.
type ForbiddenError struct{ What string }

func (e *ForbiddenError) Error() string { return "you may not " + e.What }

// Right is something that RBAC may allow.
type Right struct {
	attributes authorizationv1.ResourceAttributes
	// what says it, for people.
	what string
}

const (
	ourGroup  = "brokering.liqo.io"
	authGroup = "authentication.liqo.io"
)

// ListProviders is the right to see the providers where that is not open to everybody.
func ListProviders() Right {
	return Right{
		authorizationv1.ResourceAttributes{Verb: "list", Group: ourGroup, Resource: "providerclusters"},
		"list providerclusters.brokering.liqo.io",
	}
}

// ListPolicies is the right to see all policies.
func ListPolicies() Right {
	return Right{
		authorizationv1.ResourceAttributes{Verb: "list", Group: ourGroup, Resource: "placementpolicies"},
		"list placementpolicies.brokering.liqo.io",
	}
}

// ListPods is the right to see where pods are, in one namespace or, with "", in all.
func ListPods(namespace string) Right {
	return Right{
		authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: namespace},
		"list pods" + in(namespace),
	}
}

// GetPods is the right to have pods explained, in one namespace or, with "", in all. It needs ListProviders as well.
func GetPods(namespace string) Right {
	return Right{
		authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: namespace},
		"get pods" + in(namespace),
	}
}

// PatchProvider is the right to enable and disable a provider for everybody, or with "" any.
func PatchProvider(id string) Right {
	what := "patch providerclusters.brokering.liqo.io"
	if id != "" {
		what += " " + id
	}
	return Right{authorizationv1.ResourceAttributes{Verb: "patch", Group: ourGroup, Resource: "providerclusters", Name: id}, what}
}

func in(namespace string) string {
	if namespace == "" {
		return " in all namespaces"
	}
	return " in namespace " + namespace
}

// Authorizer decides whether a caller has one of the permissions. Its errors may be a *LimitError.
type Authorizer interface {
	Authorize(ctx context.Context, who user.Info, anyOf []authorizationv1.ResourceAttributes) (bool, error)
	// Refuse costs a caller what it costs to be denied a permission, of something that does not exist.
	Refuse(ctx context.Context, who user.Info, what *authorizationv1.ResourceAttributes) error
}

// Tenants knows the consumers.
type Tenants interface {
	// TenantNamespace is where a consumer's peering lives here; false if it is no consumer.
	TenantNamespace(consumer string) (string, bool)
	// TenantOf is the consumer whose peering lives in a namespace; false if it is no tenant namespace.
	TenantOf(namespace string) (consumer string, ok bool)
}

// Rights says what callers may do.
type Rights struct {
	Authorizer Authorizer
	Tenants    Tenants
}

// Has says whether a caller has all the rights. The error is an ErrUnavailable or a *LimitError.
func (r *Rights) Has(ctx context.Context, who *Caller, rights ...Right) (bool, error) {
	if !who.Known() {
		return false, nil
	}
	for i := range rights {
		ok, err := r.Authorizer.Authorize(ctx, who.User, []authorizationv1.ResourceAttributes{rights[i].attributes})
		if err != nil {
			return false, unavailable(err)
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}

// Need returns an ErrStranger or a *ForbiddenError unless a caller has all the rights.
func (r *Rights) Need(ctx context.Context, who *Caller, rights ...Right) error {
	if err := who.NeedKnown(); err != nil {
		return err
	}
	for i := range rights {
		ok, err := r.Has(ctx, who, rights[i])
		if err != nil {
			return err
		}
		if !ok {
			return &ForbiddenError{What: rights[i].what}
		}
	}
	return nil
}

// HasEither says whether a caller has a right to all there is of something, or to one of it. Of what does not exist the
// API server is not asked, and who may not see all learns by nothing whether it does. The error is as that of Has.
func (r *Rights) HasEither(ctx context.Context, who *Caller, all, one Right, exists bool) (bool, error) {
	if ok, err := r.Has(ctx, who, all); ok || err != nil {
		return ok, err
	}
	if exists || !who.Known() {
		return r.Has(ctx, who, one)
	}
	return false, r.refuse(ctx, who, one)
}

// NeedEither returns an ErrStranger or a *ForbiddenError unless a caller HasEither right.
func (r *Rights) NeedEither(ctx context.Context, who *Caller, all, one Right, exists bool) error {
	if err := who.NeedKnown(); err != nil {
		return err
	}
	if ok, err := r.HasEither(ctx, who, all, one, exists); ok || err != nil {
		return err
	}
	return &ForbiddenError{What: one.what}
}

func (r *Rights) refuse(ctx context.Context, who *Caller, of Right) error {
	if err := r.Authorizer.Refuse(ctx, who.User, &of.attributes); err != nil {
		return unavailable(err)
	}
	return nil
}

// ActsFor says whether a caller may act for a consumer: whether it may do what Liqo's peering lets the identity of the
// consumer do here, which is to ask for resources in the consumer's tenant namespace (ClusterRole
// liqo-remote-controlplane). Nobody acts for a consumer that is not known.
func (r *Rights) ActsFor(ctx context.Context, who *Caller, consumer string) (bool, error) {
	namespace, ok := r.Tenants.TenantNamespace(consumer)
	if !ok {
		return false, nil
	}
	return r.Has(ctx, who, createSlices(namespace))
}

func createSlices(namespace string) Right {
	return Right{attributes: authorizationv1.ResourceAttributes{
		Verb: "create", Group: authGroup, Resource: "resourceslices", Namespace: namespace,
	}}
}

// NeedToActFor returns an ErrStranger or a *ForbiddenError unless a caller may act for a consumer. It does not tell
// whether there is such a consumer.
func (r *Rights) NeedToActFor(ctx context.Context, who *Caller, consumer string) error {
	if err := who.NeedKnown(); err != nil {
		return err
	}
	ok, err := r.ActsFor(ctx, who, consumer)
	if err != nil || ok {
		return err
	}
	if _, known := r.Tenants.TenantNamespace(consumer); !known {
		if err := r.refuse(ctx, who, createSlices("of consumer "+consumer)); err != nil {
			return err
		}
	}
	return &ForbiddenError{What: fmt.Sprintf(
		"act for consumer %q: that is to create resourceslices.authentication.liqo.io in its tenant namespace", consumer)}
}

// Consumer is on whose behalf a caller asks who does not say so; "" if on nobody's.
func (r *Rights) Consumer(ctx context.Context, who *Caller) (string, error) {
	for _, consumer := range r.supposed(who) {
		switch ok, err := r.ActsFor(ctx, who, consumer); {
		case err != nil:
			return "", err
		case ok:
			return consumer, nil
		}
	}
	return "", nil
}

// supposed are the consumers that a caller may be. Liqo gives a consumer two kinds of certificates: that of its control
// plane is called as the consumer and may ask for resources, that of a ResourceSlice has the consumer for an organisation.
// Those with several organisations are not trusted: Liqo signs a request when the first of them is right, so the others
// are whatever the consumer wrote there.
func (r *Rights) supposed(who *Caller) []string {
	if !who.Known() {
		return nil
	}
	if namespace, _, err := serviceaccount.SplitUsername(who.Name()); err == nil {
		if consumer, ok := r.Tenants.TenantOf(namespace); ok {
			return []string{consumer}
		}
		return nil
	}
	if len(who.organizations) != 1 {
		return nil
	}
	return slices.Compact([]string{who.Name(), who.organizations[0]})
}
