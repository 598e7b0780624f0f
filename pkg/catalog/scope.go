package catalog

import (
	"context"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/federation"
)

// acting is on behalf of which consumer a caller asks: of the one that it names, which it must be allowed to, or of the one
// that it is; "" if of none.
func (s *server) acting(ctx context.Context, named string) (string, error) {
	who := callerOf(ctx)
	if named == "" {
		return s.rights.Consumer(ctx, who)
	}
	return named, s.rights.NeedToActFor(ctx, who, named)
}

// seesProviders is on behalf of which consumer a caller asks for providers, if it may.
func (s *server) seesProviders(ctx context.Context, named string) (string, error) {
	consumer, err := s.acting(ctx, named)
	if err != nil || consumer != "" || !s.access.ReadAuth {
		return consumer, err
	}
	return "", s.rights.Need(ctx, callerOf(ctx), caller.ListProviders())
}

// scope is what a caller sees of what names pods or consumers: what belongs to the consumer on whose behalf it asks, or
// with a right everything. With the right, too, one may look at what belongs to a consumer only.
func (s *server) scope(ctx context.Context, named string, all caller.Right) (federation.Scope, error) {
	who := callerOf(ctx)
	consumer, err := s.acting(ctx, named)
	if err == nil && consumer != "" {
		return federation.Scope{Consumer: consumer}, nil
	}
	if err != nil {
		switch may, hasErr := s.rights.Has(ctx, who, all); {
		case hasErr != nil:
			return federation.Scope{}, hasErr
		case !may:
			return federation.Scope{}, err
		}
		return federation.Scope{Consumer: named}, nil
	}
	if err := s.rights.Need(ctx, who, all); err != nil {
		return federation.Scope{}, err
	}
	return federation.Scope{All: true}, nil
}

// scopeOfPods is the scope of who asks for placements: also one namespace, for who may list the pods there.
func (s *server) scopeOfPods(ctx context.Context, named, namespace string) (federation.Scope, error) {
	scope, err := s.scope(ctx, named, caller.ListPods(""))
	if err == nil || namespace == "" {
		return scope, err
	}
	may, hasErr := s.rights.HasEither(ctx, callerOf(ctx), caller.ListPods(""), caller.ListPods(namespace),
		s.view.HasNamespace(namespace))
	switch {
	case hasErr != nil:
		return federation.Scope{}, hasErr
	case !may:
		return federation.Scope{}, err
	}
	return federation.Scope{Namespace: namespace, Consumer: named}, nil
}
