package catalog

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// apiServer is a fake API server with the features that the catalog needs: it lists, watches, patches, and reviews
// callers by the tables.
type apiServer struct {
	// reviews counts TokenReviews and SubjectAccessReviews.
	reviews atomic.Int64
	t       testing.TB
	scheme  *runtime.Scheme
	url     string
	close   func()

	mu       sync.Mutex
	version  int
	objects  map[string]map[string]map[string]any // By collection and key; guarded by mu.
	watchers map[chan string]string               // The collection that each watches; guarded by mu.
	requests []string                             // Without watches and lists; guarded by mu.
	selected map[string]string                    // How each collection is watched; guarded by mu.
}

// collections are its collections, by resource.
var collections = map[string]metav1.APIResource{
	"/api/v1/pods":                   {Name: "pods", Kind: "Pod", Namespaced: true},
	"/api/v1/namespaces":             {Name: "namespaces", Kind: "Namespace"},
	"/api/v1/configmaps":             {Name: "configmaps", Kind: "ConfigMap", Namespaced: true},
	"/api/v1/nodes":                  {Name: "nodes", Kind: "Node"},
	"/api/v1/persistentvolumeclaims": {Name: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true},
	"/api/v1/persistentvolumes":      {Name: "persistentvolumes", Kind: "PersistentVolume"},
	"/api/v1/secrets":                {Name: "secrets", Kind: "Secret", Namespaced: true},
	"/apis/brokering.liqo.io/v1alpha1/providerclusters":  {Name: "providerclusters", Kind: "ProviderCluster"},
	"/apis/brokering.liqo.io/v1alpha1/placementpolicies": {Name: "placementpolicies", Kind: "PlacementPolicy"},
	"/apis/core.liqo.io/v1beta1/foreignclusters":         {Name: "foreignclusters", Kind: "ForeignCluster"},
	"/apis/discovery.liqo.io/v1alpha1/foreignclusters":   {Name: "foreignclusters", Kind: "ForeignCluster"},
	"/apis/offloading.liqo.io/v1beta1/virtualnodes":      {Name: "virtualnodes", Kind: "VirtualNode", Namespaced: true},
	"/apis/offloading.liqo.io/v1beta1/namespacemaps":     {Name: "namespacemaps", Kind: "NamespaceMap", Namespaced: true},
}

func newAPIServer(t testing.TB, objects ...client.Object) *apiServer {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	s := &apiServer{
		t: t, scheme: scheme, objects: map[string]map[string]map[string]any{}, watchers: map[chan string]string{},
		selected: map[string]string{},
	}
	s.put(objects...)
	server := httptest.NewServer(s)
	s.url, s.close = server.URL, func() {
		server.CloseClientConnections()
		server.Close()
	}
	t.Cleanup(s.close)
	return s
}

// config speaks JSON, which is all that the server understands.
func (s *apiServer) config() *rest.Config {
	return &rest.Config{Host: s.url, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
}

// put adds objects, or replaces them.
func (s *apiServer) put(objects ...client.Object) {
	for _, o := range objects {
		gvk, err := apiutil.GVKForObject(o, s.scheme)
		require.NoError(s.t, err)
		text, err := json.Marshal(o)
		require.NoError(s.t, err)
		var object map[string]any
		require.NoError(s.t, json.Unmarshal(text, &object))
		object["kind"], object["apiVersion"] = gvk.Kind, gvk.GroupVersion().String()
		for path, resource := range collections {
			if resource.Kind == gvk.Kind && strings.Contains(path, "/"+gvk.GroupVersion().String()+"/") {
				s.store(path, o.GetNamespace()+"/"+o.GetName(), object)
			}
		}
	}
}

func (s *apiServer) store(collection, key string, object map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	object["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(s.version)
	event := "MODIFIED"
	if s.objects[collection] == nil {
		s.objects[collection] = map[string]map[string]any{}
	}
	if s.objects[collection][key] == nil {
		event = "ADDED"
	}
	s.objects[collection][key] = object
	text, err := json.Marshal(map[string]any{"type": event, "object": object})
	require.NoError(s.t, err)
	for watcher, watched := range s.watchers {
		if watched == collection {
			watcher <- string(text)
		}
	}
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	collection, key := s.parse(r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/apis":
		s.say(w, s.groups())
	case strings.Count(r.URL.Path, "/") <= 3 && s.resources(r.URL.Path) != nil:
		s.say(w, s.resources(r.URL.Path))
	case strings.HasSuffix(r.URL.Path, "reviews"):
		s.review(w, r)
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		s.watch(w, r, collection)
	case r.Method == http.MethodGet && key == "":
		s.list(w, collection)
	case r.Method == http.MethodPatch:
		s.patch(w, r, collection, key)
	default:
		w.WriteHeader(http.StatusNotFound)
		s.say(w, metav1.Status{Status: "Failure", Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
	}
}

// parse finds the collection of a path, and the key of the object in it, "" if it is for the collection.
func (s *apiServer) parse(path string) (collection, key string) {
	namespace := ""
	if before, after, ok := strings.Cut(path, "/namespaces/"); ok && strings.Contains(after, "/") {
		namespace, after, _ = strings.Cut(after, "/")
		path = before + "/" + after
	}
	for collection := range collections {
		if path == collection {
			return collection, ""
		}
		if name, ok := strings.CutPrefix(path, collection+"/"); ok {
			return collection, namespace + "/" + name
		}
	}
	return "", path
}

func (s *apiServer) say(w http.ResponseWriter, what any) {
	if err := json.NewEncoder(w).Encode(what); err != nil {
		s.t.Log(err)
	}
}

func (s *apiServer) groups() *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, group := range []string{
		"brokering.liqo.io/v1alpha1", "core.liqo.io/v1beta1", "offloading.liqo.io/v1beta1", "discovery.liqo.io/v1alpha1",
	} {
		name, version, _ := strings.Cut(group, "/")
		v := metav1.GroupVersionForDiscovery{GroupVersion: group, Version: version}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	return list
}

func (s *apiServer) resources(path string) *metav1.APIResourceList {
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/"),
	}
	for collection, resource := range collections {
		if strings.HasPrefix(collection, path+"/") {
			resource.Verbs = metav1.Verbs{"list", "watch", "patch"}
			list.APIResources = append(list.APIResources, resource)
		}
	}
	if len(list.APIResources) == 0 || path == "/api" {
		return nil
	}
	return list
}

func (s *apiServer) review(w http.ResponseWriter, r *http.Request) {
	s.reviews.Add(1)
	if strings.HasSuffix(r.URL.Path, "tokenreviews") {
		var review authenticationv1.TokenReview
		require.NoError(s.t, json.NewDecoder(r.Body).Decode(&review))
		name, ok := users[review.Spec.Token]
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: ok, User: authenticationv1.UserInfo{Username: name}}
		s.say(w, review)
		return
	}
	var review authorizationv1.SubjectAccessReview
	require.NoError(s.t, json.NewDecoder(r.Body).Decode(&review))
	review.Status.Allowed = allowed(&review.Spec)
	s.say(w, review)
}

func (s *apiServer) list(w http.ResponseWriter, collection string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []map[string]any{}
	for _, object := range s.objects[collection] {
		items = append(items, object)
	}
	group, _ := strings.CutPrefix(collection[:strings.LastIndex(collection, "/")], "/apis/")
	s.say(w, map[string]any{
		"kind": collections[collection].Kind + "List", "apiVersion": strings.TrimPrefix(group, "/api/"),
		"metadata": map[string]any{"resourceVersion": fmt.Sprint(s.version)}, "items": items,
	})
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, collection string) {
	changes := make(chan string, 1000)
	s.mu.Lock()
	var first []string
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, object := range s.objects[collection] {
			text, err := json.Marshal(map[string]any{"type": "ADDED", "object": object})
			require.NoError(s.t, err)
			first = append(first, string(text))
		}
		gv := strings.TrimPrefix(strings.TrimPrefix(collection[:strings.LastIndex(collection, "/")], "/apis/"), "/api/")
		first = append(first, fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d",`+
			`"annotations":{"k8s.io/initial-events-end":"true"}}}}`, collections[collection].Kind, gv, s.version))
	}
	s.watchers[changes] = collection
	s.selected[collection] = r.URL.Query().Get("fieldSelector")
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, changes)
	}()
	for _, text := range first {
		fmt.Fprintln(w, text)
	}
	w.(http.Flusher).Flush()
	for {
		select {
		case text := <-changes:
			fmt.Fprintln(w, text)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (s *apiServer) patch(w http.ResponseWriter, r *http.Request, collection, key string) {
	var change map[string]any
	require.NoError(s.t, json.NewDecoder(r.Body).Decode(&change))
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	object := s.objects[collection][key]
	s.mu.Unlock()
	if object == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	text, err := json.Marshal(object)
	require.NoError(s.t, err)
	var merged map[string]any
	require.NoError(s.t, json.Unmarshal(text, &merged))
	merge(merged, change)
	s.store(collection, key, merged)
	s.say(w, merged)
}

// merge is a JSON merge patch, without the deleting.
func merge(into, change map[string]any) {
	for key, value := range change {
		inner, ok := value.(map[string]any)
		have, has := into[key].(map[string]any)
		if ok && has {
			merge(have, inner)
		} else {
			into[key] = value
		}
	}
}

// wrote are the requests that changed something.
func (s *apiServer) wrote() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}
