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

// ErrStranger means that a request needs an identified caller.
var ErrStranger = errors.New("authentication required: send a bearer token, or a client certificate signed by the cluster's CA")

// NeedKnown returns an ErrStranger unless the caller is identified.
func (c *Caller) NeedKnown() error {
	switch {
	case c.Known():
		return nil
	case c.Certificate != "":
		return fmt.Errorf("%w; the client certificate is not accepted: %s", ErrStranger, c.Certificate)
	}
	return ErrStranger
}

// ForbiddenError has the right that a caller does not have.
type ForbiddenError struct{ What string }

func (e *ForbiddenError) Error() string { return "you may not " + e.What }

// Right is a permission of RBAC.
type Right struct {
	attributes authorizationv1.ResourceAttributes
	// what describes the right.
	what string
}

const (
	ourGroup  = "brokering.liqo.io"
	authGroup = "authentication.liqo.io"
)

// ListProviders is the right to see the providers, where anonymous callers do not see them.
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

// ListPods is the right to see the places of pods, in one namespace or, with "", in all.
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

// PatchProvider is the right to enable and disable a provider for all consumers, or any provider with "".
func PatchProvider(id string) Right {
	what := "patch providerclusters.brokering.liqo.io"
	if id != "" {
		what += " " + id
	}
	return Right{authorizationv1.ResourceAttributes{Verb: "patch", Group: ourGroup, Resource: "providerclusters", Name: id}, what}
}

// ListForeignClustersV0 is the right to see the status of ForeignClusters of Liqo v0.x.
func ListForeignClustersV0() Right {
	return Right{
		authorizationv1.ResourceAttributes{Verb: "list", Group: "discovery.liqo.io", Resource: "foreignclusters"},
		"list foreignclusters.discovery.liqo.io",
	}
}

// PatchNode is the right to cordon a node, or any node with "".
func PatchNode(name string) Right {
	what := "patch nodes"
	if name != "" {
		what += " " + name
	}
	return Right{authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes", Name: name}, what}
}

func in(namespace string) string {
	if namespace == "" {
		return " in all namespaces"
	}
	return " in namespace " + namespace
}

// Authorizer decides if a caller has one of the permissions. Its errors may be a *LimitError.
type Authorizer interface {
	Authorize(ctx context.Context, who user.Info, anyOf []authorizationv1.ResourceAttributes) (bool, error)
	// Refuse charges the caller's allowance as a denied review does, for an object that does not exist.
	Refuse(ctx context.Context, who user.Info, what *authorizationv1.ResourceAttributes) error
}

// Tenants has the tenant namespaces of the consumers.
type Tenants interface {
	// TenantNamespace returns the tenant namespace of a consumer; false if there is no such consumer.
	TenantNamespace(consumer string) (string, bool)
	// TenantOf returns the consumer of a tenant namespace; false if it is not a tenant namespace.
	TenantOf(namespace string) (consumer string, ok bool)
}

// Rights decides on the permissions of callers.
type Rights struct {
	Authorizer Authorizer
	Tenants    Tenants
}

// Has reports whether a caller has all the rights. The error is an ErrUnavailable or a *LimitError.
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

// HasEither reports whether a caller has a right to all objects of a kind, or to one of them. The right to an object
// that does not exist is not reviewed, but has the same cost, so that a caller without rights cannot find out which
// objects exist. The error is as in Has.
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

// ActsFor reports whether a caller may act for a consumer: it needs the right that Liqo's peering gives to the
// consumer's identity, to create ResourceSlices in its tenant namespace (ClusterRole liqo-remote-controlplane).
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

// NeedToActFor returns an ErrStranger or a *ForbiddenError unless a caller may act for a consumer. The error is the
// same if there is no such consumer.
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
		"act for consumer %q: this requires create on resourceslices.authentication.liqo.io in its tenant namespace", consumer)}
}

// Consumer returns the consumer that a caller belongs to and may act for; "" if there is none.
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

// supposed returns the consumers that a caller may belong to. Liqo signs two kinds of certificates for a consumer: the
// control plane's has the consumer's id as its name, a ResourceSlice's has it as its organisation. Certificates with
// several organisations are not trusted: Liqo checks only the first one, so the consumer can choose the others.
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
