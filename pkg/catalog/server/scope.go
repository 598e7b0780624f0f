package server

import (
	"context"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view"
)

// acting returns the consumer that a caller acts for: the one that it names, if it may act for it, or the one that it
// belongs to; "" if there is none.
func (s *Server) acting(ctx context.Context, named string) (string, error) {
	who := middleware.CallerOf(ctx)
	if named == "" {
		return s.Rights.Consumer(ctx, who)
	}
	return named, s.Rights.NeedToActFor(ctx, who, named)
}

// seesProviders returns the same as acting, and an error if the caller may not see providers. Callers that neither act
// for a consumer nor may list providers do not see details (api.Provider.Public).
func (s *Server) seesProviders(ctx context.Context, named string) (consumer string, details bool, err error) {
	consumer, err = s.acting(ctx, named)
	if err != nil || consumer != "" {
		return consumer, true, err
	}
	if s.Access.ReadAuth {
		return "", true, s.Rights.Need(ctx, middleware.CallerOf(ctx), caller.ListProviders())
	}
	details, err = s.Rights.Has(ctx, middleware.CallerOf(ctx), caller.ListProviders())
	return "", details, err
}

// scope returns the pods and policies that a caller may see: the consumer's that it acts for or, with the right to all,
// every one. With that right a caller may also ask for any one consumer's.
func (s *Server) scope(ctx context.Context, named string, all caller.Right) (view.Scope, error) {
	who := middleware.CallerOf(ctx)
	consumer, err := s.acting(ctx, named)
	if err == nil && consumer != "" {
		return view.Scope{Consumer: consumer}, nil
	}
	if err != nil {
		switch may, hasErr := s.Rights.Has(ctx, who, all); {
		case hasErr != nil:
			return view.Scope{}, hasErr
		case !may:
			return view.Scope{}, err
		}
		return view.Scope{Consumer: named}, nil
	}
	if err := s.Rights.Need(ctx, who, all); err != nil {
		return view.Scope{}, err
	}
	return view.Scope{All: true}, nil
}

// scopeOfPods is scope for placements. A caller that may list the pods of one namespace sees the pods of that
// namespace.
func (s *Server) scopeOfPods(ctx context.Context, named, namespace string) (view.Scope, error) {
	scope, err := s.scope(ctx, named, caller.ListPods(""))
	if err == nil || namespace == "" {
		return scope, err
	}
	may, hasErr := s.Rights.HasEither(ctx, middleware.CallerOf(ctx), caller.ListPods(""), caller.ListPods(namespace),
		s.View.HasNamespace(namespace))
	switch {
	case hasErr != nil:
		return view.Scope{}, hasErr
	case !may:
		return view.Scope{}, err
	}
	return view.Scope{Namespace: namespace, Consumer: named}, nil
}
