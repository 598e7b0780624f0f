package histories

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
)

// transport carries HTTP requests from a process to a server. It implements http.RoundTripper.
type transport struct {
	process *process
	server  *server
	weather *weather
}

// RoundTrip answers the requests that the broker sends by client-go's own clients.
func (t transport) RoundTrip(r *http.Request) (response *http.Response, err error) {
	var body []byte
	if r.Body != nil {
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	verb := r.Method
	if strings.HasSuffix(r.URL.Path, "pods") {
		verb = "list"
	}
	if noted := t.requestOf(r); noted != nil {
		defer t.server.note(noted)
	}
	err = t.process.request(r.Context(), t.weather, verb+" "+r.URL.Path, r.Method != http.MethodGet, func() error {
		served, failed := t.serve(r, body)
		if listed, is := served.(*listed); is && !t.process.sleep(r.Context(), t.weather.listTime(listed.read)) {
			return r.Context().Err()
		}
		response = answer(r, served, failed)
		return nil
	})
	if status := (*kerrors.StatusError)(nil); errors.As(err, &status) {
		return answer(r, nil, err), nil
	}
	if err != nil {
		return nil, err
	}
	return response, nil
}

func answer(r *http.Request, answer any, err error) *http.Response {
	code := http.StatusOK
	if err != nil {
		status := &kerrors.StatusError{}
		if !errors.As(err, &status) {
			status = kerrors.NewInternalError(err)
		}
		said := status.ErrStatus
		said.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		code, answer = int(said.Code), said
	}
	text, err := json.Marshal(answer)
	if plain, is := answer.(string); is {
		text = []byte(plain)
	}
	if err != nil {
		code, text = http.StatusInternalServerError, []byte(err.Error())
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)),
		ContentLength: int64(len(text)),
	}
}

// newObject returns an empty object of a resource in a namespace.
func newObject(resource, namespace, name string) (client.Object, error) {
	var o client.Object
	switch resource {
	case "pods":
		o = &corev1.Pod{}
	case "secrets":
		o = &corev1.Secret{}
	case "shadowpods":
		o = &offloadingv1beta1.ShadowPod{}
	case "nodes":
		o = &corev1.Node{}
	default:
		return nil, fmt.Errorf("resource %s is not simulated", resource)
	}
	o.SetNamespace(namespace)
	o.SetName(name)
	return o, nil
}

// objectOf returns an empty object of the type and name in a path; the name is "" for a list.
func objectOf(path string) (o client.Object, subresource string, err error) {
	namespace, rest := "", strings.TrimPrefix(path, "/api/v1/")
	if _, inNamespace, found := strings.Cut(path, "/namespaces/"); found {
		namespace, rest, _ = strings.Cut(inNamespace, "/")
	}
	parts := append(strings.Split(rest, "/"), "", "")
	o, err = newObject(parts[0], namespace, parts[1])
	return o, parts[2], err
}

// requestOf returns the judge's form of a request; nil if the request is not judged.
func (t transport) requestOf(r *http.Request) *judge.Request {
	if r.URL.Path == readyz {
		return &judge.Request{At: time.Now(), By: t.process.name, Verb: judge.Probe}
	}
	o, _, err := objectOf(r.URL.Path)
	if err != nil {
		return nil
	}
	verb := strings.ToLower(r.Method)
	if r.Method == http.MethodGet && o.GetName() == "" {
		verb = judge.List
	}
	noted := requestOf(t.process, verb, reflect.TypeOf(o), keyOf(o))
	noted.Deadline, _ = r.Context().Deadline()
	query := r.URL.Query()
	if name, one := strings.CutPrefix(query.Get("fieldSelector"), metav1.ObjectNameField+"="); one {
		noted.Name.Name = name
	}
	noted.VirtualNode, _ = strings.CutPrefix(query.Get("labelSelector"), forge.LiqoOriginClusterNodeName+"=")
	return noted
}

const readyz = "/readyz"

// serve answers one request.
func (t transport) serve(r *http.Request, body []byte) (any, error) {
	switch r.URL.Path {
	case readyz:
		return "ok", nil
	case "/version":
		return map[string]string{"gitVersion": "v1.34.0"}, nil
	}
	o, subresource, err := objectOf(r.URL.Path)
	if err != nil {
		return nil, err
	}
	namespace, name := o.GetNamespace(), o.GetName()
	switch {
	case r.Method == http.MethodGet && name == "":
		return t.list(r, reflect.TypeOf(o), namespace)
	case r.Method == http.MethodGet:
		return t.server.find(reflect.TypeOf(o), keyOf(o))
	case r.Method == http.MethodDelete:
		var options metav1.DeleteOptions
		if err := json.Unmarshal(body, &options); err != nil {
			return nil, err
		}
		return metav1.Status{Status: metav1.StatusSuccess}, t.server.remove(t.process.name, o, options.GracePeriodSeconds,
			options.Preconditions)
	case r.Method == http.MethodPost:
		if err := json.Unmarshal(body, o); err != nil {
			return nil, err
		}
		return o, t.server.create(t.process.name, o)
	case r.Method == http.MethodPatch:
		return t.server.patch(t.process.name, o, types.PatchType(r.Header.Get("Content-Type")), body, subresource == "status")
	case r.Method == http.MethodPut:
		return t.server.update(t.process.name, o, subresource == "status", func(fresh client.Object) error {
			reflect.ValueOf(fresh).Elem().SetZero()
			return json.Unmarshal(body, fresh)
		})
	}
	return nil, fmt.Errorf("method %s is not simulated", r.Method)
}

// listed is one chunk of a list.
type listed struct {
	Metadata metav1.ListMeta `json:"metadata"`
	Items    []client.Object `json:"items"`
	// read is how many items the API server has read for this chunk.
	read int
}

// list returns the matching objects in the last chunk. The chunks before it are empty: they stand for other objects in
// the namespace, of which none matches.
func (t transport) list(r *http.Request, of reflect.Type, namespace string) (any, error) {
	query := r.URL.Query()
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	t.weather.mu.Lock()
	crowd := t.weather.crowd
	t.weather.mu.Unlock()
	begun, _ := strconv.Atoi(query.Get("continue"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	if left := crowd - begun; limit > 0 && left > limit && !strings.Contains(query.Get("fieldSelector"), metav1.ObjectNameField) {
		return &listed{Metadata: metav1.ListMeta{Continue: strconv.Itoa(begun + limit)}, Items: []client.Object{}, read: limit}, nil
	}
	items := []client.Object{}
	for _, o := range t.server.all(of) {
		if o.GetNamespace() == namespace && byLabel.Matches(labels.Set(o.GetLabels())) &&
			byField.Matches(fields.Set{metav1.ObjectNameField: o.GetName()}) {
			items = append(items, o)
		}
	}
	return &listed{Items: items, read: len(items) + min(crowd, limit)}, nil
}
