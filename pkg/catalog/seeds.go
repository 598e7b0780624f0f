package catalog

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"k8s.io/apimachinery/pkg/util/validation"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
)

// foreignClusters are Kubernetes objects, whose schema is Liqo's.
type foreignClusters []liqov1beta1.ForeignCluster

// Schema implements huma.SchemaProvider.
func (foreignClusters) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{
		Type: huma.TypeObject, AdditionalProperties: true, Required: []string{"kind", "apiVersion", "metadata"},
		Description: "A ForeignCluster of Liqo, as Kubernetes writes it",
	}}
}

type toggleInput struct {
	ConsumerInput
	ID     string `query:"id" doc:"The id of the cluster"`
	Enable string `query:"enable" doc:"true or false"`
}

// toggled is what a toggle came to.
type toggled struct {
	ID       string `json:"id" doc:"The id of the provider cluster"`
	Enabled  bool   `json:"enabled"`
	Consumer string `json:"consumer,omitempty" doc:"For which consumer; absent if for everybody"`
}

func (s *server) routeSeeds(document huma.API) {
	op := operation("listClusters", http.MethodGet, clustersPath, "The clusters that the broker is peered with",
		byAnybody, http.StatusBadRequest, http.StatusForbidden)
	register(s, document, op, s.clusters)

	op = operation("toggle", http.MethodPost, togglePath,
		"Enable or disable a provider: for the consumer on whose behalf the caller asks, otherwise for everybody", byKnown,
		http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict)
	op.SkipValidateParams = true // The answer would be 422, which clients of old do not know.
	register(s, document, op, s.toggle)
	op.OperationID, op.Method = "toggleByGet", http.MethodGet
	op.Summary += ", as clients of old call it: only with a bearer token, which no browser sends by itself"
	op.Security = []map[string][]string{{"token": {}}}
	register(s, document, op, s.toggle)
	item := document.OpenAPI().Paths[togglePath]
	for _, toggle := range []*huma.Operation{item.Get, item.Post} {
		delete(toggle.Responses, strconv.Itoa(http.StatusUnprocessableEntity)) // It is in every operation with parameters.
	}
}

// safeToggle says what is wrong with a toggle by GET, nil if nothing: no page may be able to make a browser do it. Browsers
// show client certificates by themselves, and say over HTTPS where a request comes from; who is only believed by a token.
// Over plain HTTP they say nothing: with --anonymous-toggle any page can toggle then.
func (s *server) safeToggle(r *http.Request, who *caller.Caller) *problem {
	if r.Method == http.MethodHead {
		p := newProblem(http.StatusMethodNotAllowed, "use one of the methods GET, POST")
		p.header.Set("Allow", "GET, POST")
		return p
	}
	asWrite := r.WithContext(r.Context())
	asWrite.Method = http.MethodPost
	if err := s.origins.Check(asWrite); err != nil {
		return newProblem(http.StatusForbidden, "a page of another origin may not write here")
	}
	if who.ByToken {
		return nil
	}
	*who = caller.Caller{}
	if s.access.AnonymousToggle {
		return nil
	}
	return unauthorizedToggle(r.URL.Query())
}

func unauthorizedToggle(query url.Values) *problem {
	return newProblem(http.StatusUnauthorized, caller.ErrStranger.Error()+"; "+rightCall(query)).authenticate("Bearer")
}

// clusters are all of them where everybody sees them. With --read-auth a consumer sees the providers and itself, and no
// other consumer, unless it may list providers.
func (s *server) clusters(ctx context.Context, _ *struct{}) (*answer[foreignClusters], error) {
	consumer, err := s.seesProviders(ctx, "")
	if err != nil {
		return nil, err
	}
	all := !s.access.ReadAuth
	if !all {
		if all, err = s.rights.Has(ctx, callerOf(ctx), caller.ListProviders()); err != nil {
			return nil, err
		}
	}
	list := s.view.ForeignClusters()
	if !all {
		list = slices.DeleteFunc(list, func(fc liqov1beta1.ForeignCluster) bool {
			id := string(fc.Spec.ClusterID)
			_, provides := s.view.Provider(id, "")
			return !provides && id != consumer
		})
	}
	return shared(ctx, foreignClusters(notNull(list))), nil
}

// check says what is wrong with a toggle; nil if nothing.
func (in *toggleInput) check() *problem {
	switch {
	case in.Enable != "true" && in.Enable != "false":
		return newProblem(http.StatusBadRequest, "say whether to enable the cluster", fault("query.enable", "use true or false"))
	case in.ID == "":
		return newProblem(http.StatusBadRequest, "say which cluster", fault("query.id", "give the id of a cluster"))
	case in.Consumer != "" && len(validation.IsDNS1123Label(in.Consumer)) > 0:
		return newProblem(http.StatusBadRequest, "say on whose behalf, or leave it out",
			fault("query.consumer", "give the id of a consumer"))
	}
	return nil
}

// toggle is open to who has the right, and with --anonymous-toggle to everybody.
func (s *server) toggle(ctx context.Context, in *toggleInput) (*answer[toggled], error) {
	who := callerOf(ctx)
	if !who.Known() && !s.access.AnonymousToggle {
		return nil, unauthorizedToggle(url.Values{"id": {in.ID}, "enable": {in.Enable}})
	}
	if p := in.check(); p != nil {
		return nil, p
	}
	consumer, err := s.acting(ctx, in.Consumer)
	if err != nil {
		return nil, err
	}
	id, known := s.providerCalled(in.ID)
	out := toggled{ID: id, Enabled: in.Enable == "true", Consumer: consumer}
	if consumer == "" && !s.access.AnonymousToggle {
		// Who may not enable all of them must know its id: what clusters are called is not told.
		if err := s.mayEnable(ctx, in.ID, known && id == in.ID); err != nil {
			return nil, err
		}
	}
	switch {
	case !known:
		err = noProvider()
	case consumer != "":
		err = s.selectProvider(ctx, consumer, id, out.Enabled)
	default:
		err = s.enableProvider(ctx, id, out.Enabled)
	}
	if err != nil {
		return nil, err
	}
	return private(out), nil
}

// providerCalled finds a provider by its id or, which Liqo v1 keeps the same, by the name of its ForeignCluster.
func (s *server) providerCalled(name string) (string, bool) {
	if _, ok := s.view.Provider(name, ""); ok {
		return name, true
	}
	clusters := s.view.ForeignClusters()
	for i := range clusters {
		if clusters[i].Name == name {
			id := string(clusters[i].Spec.ClusterID)
			_, ok := s.view.Provider(id, "")
			return id, ok
		}
	}
	return name, false
}

// rightCall says how to toggle, for who did it wrong.
func rightCall(query url.Values) string {
	id, enable := query.Get("id"), query.Get("enable")
	if len(validation.IsDNS1123Label(id)) > 0 {
		id = "CLUSTER"
	}
	if enable != "true" && enable != "false" {
		enable = "true|false"
	}
	return fmt.Sprintf(`call it so: curl -X POST -H "Authorization: Bearer $TOKEN" 'https://…%s?id=%s&enable=%s'`,
		togglePath, id, enable)
}
