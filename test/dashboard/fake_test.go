package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/dashboard"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
)

const (
	consumerToken = "token-of-consumer1"
	operatorToken = "token-of-the-operator"
	consumerID    = "consumer1"
	version       = "v0.0.0-test"
)

// fake is a fake catalog: the part of the API that the dashboard uses, over an invented federation.
type fake struct {
	mu         sync.Mutex
	providers  []api.Provider          // By id. Guarded by mu, like all following fields.
	placements []api.Placement         // By namespace and name.
	unselected map[string]bool         // The providers that the consumer has deselected.
	listeners  map[chan event]struct{} // The streams.
	closed     bool                    // Anonymous callers see nothing.
	revoked    bool                    // All tokens are rejected.
	priority   int32                   // Of the first policy.
	wrong      []string                // Calls that the API would reject.
	calls      []call
}

// call is a call that was made: the path below /api/v1 and the query.
type call struct {
	of string
	at time.Time
}

func (f *fake) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", dashboard.Handler())
	for _, route := range []struct {
		pattern, parameters string
		answer              http.HandlerFunc
	}{
		{"GET /api/v1/me", "consumer", f.me},
		{"GET /api/v1/providers", "consumer limit continue q ready enabled region", f.listProviders},
		{"GET /api/v1/providers/{id}/history", "consumer", f.history},
		{"PUT /api/v1/providers/{id}/selected", "consumer", f.turn("selected")},
		{"PUT /api/v1/providers/{id}/enabled", "", f.turn("enabled")},
		{"GET /api/v1/placements", "consumer limit continue namespace provider phase q waiting", f.listPlacements},
		{"GET /api/v1/flows", "consumer", f.flows},
		{"GET /api/v1/policies", "consumer limit continue", f.policies},
		{"GET /api/v1/explain", "consumer namespace pod", f.explain},
		{"GET /api/v1/events", "consumer", f.events},
	} {
		mux.HandleFunc(route.pattern, func(w http.ResponseWriter, r *http.Request) {
			for name := range r.URL.Query() {
				if !slices.Contains(strings.Fields(route.parameters), name) {
					f.unexpected(r.Method + " " + r.URL.String())
					problem(w, http.StatusUnprocessableEntity, "There is no parameter "+name+".")
					return
				}
			}
			f.mu.Lock()
			f.calls = append(f.calls, call{strings.TrimPrefix(r.URL.RequestURI(), "/api/v1/"), time.Now()})
			f.mu.Unlock()
			route.answer(w, r)
		})
	}
	return mux
}

// called returns the number of calls that contain all the given parts.
func (f *fake) called(parts ...string) int {
	return len(f.times(func(call string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(call, part) })
	}))
}

// times returns the times of the calls that which selects.
func (f *fake) times(which func(call string) bool) []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	var times []time.Time
	for _, call := range f.calls {
		if which(call.of) {
			times = append(times, call.at)
		}
	}
	return times
}

// unexpected records a call that the API would reject.
func (f *fake) unexpected(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = append(f.wrong, call)
}

// callerOf answers the request itself and returns false if the caller is not allowed.
func (f *fake) callerOf(w http.ResponseWriter, r *http.Request) (api.Me, bool) {
	f.mu.Lock()
	closed, revoked := f.closed, f.revoked
	f.mu.Unlock()
	me := api.Me{Services: api.Served{Version: version, Node: "liqo-broker"}}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	asked := r.URL.Query().Get("consumer")
	if revoked && token != "" {
		token = "revoked"
	}
	switch token {
	case "":
		if closed && r.URL.Path != "/api/v1/me" {
			problem(w, http.StatusUnauthorized, "This catalog is open to callers with a token only.")
			return me, false
		}
	case consumerToken:
		me.User, me.Consumer = "system:serviceaccount:liqo-tenant-consumer1:people", consumerID
		me.Can = api.Can{Placements: true, Policies: true, Explain: true, Select: true}
	case operatorToken:
		me.User = "system:serviceaccount:liqo-broker:operator"
		me.Can = api.Can{Placements: true, Policies: true, Explain: true, Enable: true}
		if asked == consumerID {
			me.Consumer, me.Can.Select, me.Can.Enable = asked, true, false
		}
	default:
		problem(w, http.StatusUnauthorized, "The token is not valid.")
		return me, false
	}
	if asked != "" && me.Consumer != asked {
		problem(w, http.StatusForbidden, "You may not act for consumer "+asked+".")
		return me, false
	}
	return me, true
}

func (f *fake) me(w http.ResponseWriter, r *http.Request) {
	if me, ok := f.callerOf(w, r); ok {
		answer(w, me)
	}
}

func (f *fake) shown(p api.Provider, consumer string) api.Provider {
	if consumer != "" {
		selected := !f.unselected[p.ID]
		p.Selected = &selected
	}
	return p
}

func (f *fake) listProviders(w http.ResponseWriter, r *http.Request) {
	me, ok := f.callerOf(w, r)
	if !ok {
		return
	}
	q := r.URL.Query()
	f.mu.Lock()
	defer f.mu.Unlock()
	found := []api.Provider{}
	for _, p := range f.providers {
		if strings.Contains(p.ID, q.Get("q")) && fits(q.Get("ready"), p.Ready) && fits(q.Get("enabled"), p.Enabled) &&
			fits(q.Get("region"), p.Region) {
			found = append(found, f.shown(p, me.Consumer))
		}
	}
	items, page := pageOf(r, found)
	answer(w, api.ProviderList{Items: items, Page: page})
}

func fits(asked string, value any) bool { return asked == "" || asked == fmt.Sprint(value) }

func pageOf[T any](r *http.Request, all []T) ([]T, api.Page) {
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	to := min(len(all), from+cmp.Or(limit, 100))
	page := api.Page{Total: len(all)}
	if to < len(all) {
		page.Continue = strconv.Itoa(to)
	}
	return all[from:to], page
}

func (f *fake) history(w http.ResponseWriter, r *http.Request) {
	answer(w, madeUpHistory(r.PathValue("id"), time.Now()))
}

func (f *fake) turn(field string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if me, ok := f.callerOf(w, r); ok {
			f.turned(w, r, &me, field)
		}
	}
}

func (f *fake) turned(w http.ResponseWriter, r *http.Request, me *api.Me, field string) {
	body := map[string]bool{}
	if allowed := map[string]bool{"selected": me.Can.Select, "enabled": me.Can.Enable}; !allowed[field] {
		problem(w, map[bool]int{true: 401, false: 403}[me.User == ""], "You may not change what is "+field+".")
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	answer(w, f.set(r.PathValue("id"), field, me.Consumer, body[field]))
}

// set sets a switch of a provider, and sends the event.
func (f *fake) set(id, field, consumer string, on bool) api.Provider {
	f.mu.Lock()
	at := slices.IndexFunc(f.providers, func(p api.Provider) bool { return p.ID == id })
	if field == "selected" {
		f.unselected[id] = !on
	} else {
		f.providers[at].Enabled = on
	}
	now := f.shown(f.providers[at], consumer)
	f.mu.Unlock()
	f.send(event{name: api.EventProvider, data: now})
	return now
}

func (f *fake) visible(me *api.Me) []api.Placement {
	return slices.DeleteFunc(slices.Clone(f.placements), func(p api.Placement) bool {
		return !me.Can.Placements || me.Consumer != "" && p.Consumer != me.Consumer
	})
}

func (f *fake) listPlacements(w http.ResponseWriter, r *http.Request) {
	me, ok := f.callerOf(w, r)
	if !ok {
		return
	}
	q := r.URL.Query()
	f.mu.Lock()
	defer f.mu.Unlock()
	found := slices.DeleteFunc(f.visible(&me), func(p api.Placement) bool {
		return !strings.Contains(p.Namespace+"/"+p.Pod, q.Get("q")) || !fits(q.Get("provider"), p.Provider) ||
			!fits(q.Get("phase"), p.Phase) || q.Get("waiting") == "true" && p.Provider != ""
	})
	items, page := pageOf(r, found)
	answer(w, api.PlacementList{Items: items, Page: page})
}

func (f *fake) flows(w http.ResponseWriter, r *http.Request) {
	me, ok := f.callerOf(w, r)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := map[api.Flow]int{}
	for _, p := range f.visible(&me) {
		counts[api.Flow{Consumer: p.Consumer, Provider: p.Provider}]++
	}
	list := api.FlowList{Items: []api.Flow{}}
	for flow, pods := range counts {
		list.Items = append(list.Items, api.Flow{Consumer: flow.Consumer, Provider: flow.Provider, Pods: pods})
	}
	answer(w, list)
}

func (f *fake) policies(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	unwanted := []string{}
	for _, p := range f.providers {
		if f.unselected[p.ID] {
			unwanted = append(unwanted, p.ID)
		}
	}
	pods := int32(0)
	for _, p := range f.placements {
		if p.Consumer == consumerID && p.Provider != "" {
			pods++
		}
	}
	answer(w, api.PolicyList{Items: []api.Policy{{
		Name: "cheap-in-europe", Priority: f.priority, Consumers: []string{consumerID}, Pods: pods,
		Filter:  "'region' in provider.attributes && provider.attributes['region'].startsWith('eu')",
		Weights: []api.Weight{{Name: "price", Weight: 3}, {Name: "free", Weight: 2}, {Name: "spread", Weight: 2}},
	}, {
		Name: "selection-consumer1", Priority: 100, Consumers: []string{consumerID}, Pods: pods,
		Selection: &api.Selection{Mode: "AllBut", Providers: unwanted},
	}}, Page: api.Page{Total: 2}})
}

func (f *fake) explain(w http.ResponseWriter, r *http.Request) {
	me, ok := f.callerOf(w, r)
	if !ok {
		return
	}
	name := r.URL.Query().Get("namespace") + "/" + r.URL.Query().Get("pod")
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.visible(&me) {
		if p.Namespace+"/"+p.Pod == name {
			answer(w, madeUpExplanation(&p))
			return
		}
	}
	problem(w, http.StatusNotFound, "There is no pod "+name+".")
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "detail": detail})
}

func madeUpExplanation(p *api.Placement) explain.Explanation {
	return explain.Explanation{
		Pod: p.Namespace + "/" + p.Pod, AssignedTo: p.Provider, Chosen: "helsinki-dc1", Policy: "cheap-in-europe",
		Message: "Would be assigned to provider helsinki-dc1: score 83 (price 29, spread 29, free 25); 1 other fits; 1 not ready",
		Providers: []explain.Choice{
			{Provider: "frankfurt-gpu", Score: 78, Points: map[string]int{"free": 18, "price": 43, "spread": 17}},
			{Provider: "helsinki-dc1", Score: 83, Points: map[string]int{"free": 25, "price": 29, "spread": 29}},
			{Provider: "milan-edge", Filtered: "not ready: the API server of the cluster does not answer"},
		},
	}
}
