package server

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"k8s.io/apimachinery/pkg/util/validation"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/problem"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/toggle"
)

// foreignClusters are objects of Liqo's API; the document does not repeat their schema.
type foreignClusters []liqov1beta1.ForeignCluster

func (foreignClusters) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{
		Type: huma.TypeObject, AdditionalProperties: true, Required: []string{"kind", "apiVersion", "metadata"},
		Description: "A ForeignCluster of Liqo, as Kubernetes writes it",
	}}
}

type toggleInput struct {
	ConsumerInput
	ID     string `query:"id" doc:"The id of the cluster"`
	Enable string `query:"enable" doc:"true to enable it, false to disable it"`
}

type toggled struct {
	ID       string `json:"id" doc:"The id of the provider cluster"`
	Enabled  bool   `json:"enabled"`
	Consumer string `json:"consumer,omitempty" doc:"The consumer that it was selected for; absent if it was enabled or disabled for all"`
}

func (s *Server) routeLegacy(document huma.API) {
	op := operation("listClusters", http.MethodGet, clustersPath, "The clusters that the broker is peered with",
		byAnybody, http.StatusBadRequest, http.StatusForbidden)
	register(s, document, op, s.clusters)

	op = operation("toggle", http.MethodPost, toggle.Path,
		"Select a provider for the consumer that the caller acts for; without one, enable or disable it for all consumers", byKnown,
		http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict)
	op.SkipValidateParams = true // It would answer 422, which existing clients do not expect.
	register(s, document, op, s.toggle)
	op.OperationID, op.Method = "toggleByGet", http.MethodGet
	op.Summary += ". GET is for existing clients and needs a bearer token, which browsers do not send by themselves"
	op.Security = []map[string][]string{{"token": {}}}
	register(s, document, op, s.toggle)
	item := document.OpenAPI().Paths[toggle.Path]
	for _, method := range []*huma.Operation{item.Get, item.Post} {
		delete(method.Responses, strconv.Itoa(http.StatusUnprocessableEntity)) // Huma adds it to every operation with parameters.
	}
}

// clusters lists the ForeignClusters. Callers that may list providers see all of them. Other callers see the providers'
// and the one of the consumer that they act for. Callers that are neither see the providers' only, without addresses
// and messages.
func (s *Server) clusters(ctx context.Context, _ *struct{}) (*answer[foreignClusters], error) {
	consumer, details, err := s.seesProviders(ctx, "")
	if err != nil {
		return nil, err
	}
	all := details // Without a consumer, details means the right to list providers.
	if consumer != "" {
		if all, err = s.Rights.Has(ctx, middleware.CallerOf(ctx), caller.ListProviders()); err != nil {
			return nil, err
		}
	}
	list := s.View.ForeignClusters()
	if !all {
		list = slices.DeleteFunc(list, func(fc liqov1beta1.ForeignCluster) bool {
			id := string(fc.Spec.ClusterID)
			_, provides := s.View.Provider(id, "")
			return !provides && id != consumer
		})
	}
	if !details {
		for i := range list {
			list[i] = publicCluster(&list[i])
		}
	}
	return shared(ctx, foreignClusters(list)), nil
}

// publicCluster has the names of a ForeignCluster, its role, and its enabled modules.
func publicCluster(fc *liqov1beta1.ForeignCluster) liqov1beta1.ForeignCluster {
	public := liqov1beta1.ForeignCluster{TypeMeta: fc.TypeMeta, Spec: fc.Spec}
	public.Name, public.CreationTimestamp = fc.Name, fc.CreationTimestamp
	public.Status.Role = fc.Status.Role
	public.Status.Modules.Networking.Enabled = fc.Status.Modules.Networking.Enabled
	public.Status.Modules.Authentication.Enabled = fc.Status.Modules.Authentication.Enabled
	public.Status.Modules.Offloading.Enabled = fc.Status.Modules.Offloading.Enabled
	return public
}

// check returns the fault of the parameters of a toggle; nil if there is none.
func (in *toggleInput) check() *problem.Problem {
	if p := toggle.Check(in.ID, in.Enable); p != nil {
		return p
	}
	if in.Consumer != "" && len(validation.IsDNS1123Label(in.Consumer)) > 0 {
		return problem.New(http.StatusBadRequest, "the parameter consumer is not valid",
			problem.Fault("query.consumer", "use the id of a consumer, or leave it out"))
	}
	return nil
}

// toggle needs a right, unless --anonymous-toggle is set.
func (s *Server) toggle(ctx context.Context, in *toggleInput) (*answer[toggled], error) {
	who := middleware.CallerOf(ctx)
	if !who.Known() && !s.Access.AnonymousToggle {
		return nil, toggle.Unidentified(in.ID, in.Enable)
	}
	if p := in.check(); p != nil {
		return nil, p
	}
	consumer, err := s.acting(ctx, in.Consumer)
	if err != nil {
		return nil, err
	}
	id, known := s.findProvider(in.ID)
	out := toggled{ID: id, Enabled: in.Enable == "true", Consumer: consumer}
	if consumer == "" && !s.Access.AnonymousToggle {
		// A caller that may not enable all providers must use the id: names of clusters are not disclosed to it.
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

// findProvider finds a provider by its id, or by the name of its ForeignCluster. In Liqo v1 both are the same.
func (s *Server) findProvider(name string) (string, bool) {
	if _, ok := s.View.Provider(name, ""); ok {
		return name, true
	}
	clusters := s.View.ForeignClusters()
	for i := range clusters {
		if clusters[i].Name == name {
			id := string(clusters[i].Spec.ClusterID)
			_, ok := s.View.Provider(id, "")
			return id, ok
		}
	}
	return name, false
}
