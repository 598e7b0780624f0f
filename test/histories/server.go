package histories

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
)

// change is one change of an object.
type change = judge.Change

// server is the API server of one cluster: objects by type and name, with the rules of Kubernetes for versions,
// preconditions, finalizers, graceful deletion and the status subresource. It keeps a record of all changes.
type server struct {
	name string

	mu      sync.Mutex
	version int
	kinds   map[reflect.Type]*kind
	// requests are the brokers' requests.
	requests []judge.Request
}

// kind are the objects of one type.
type kind struct {
	objects map[types.NamespacedName]client.Object
	// record has all changes; changed is closed with the next one.
	record  []change
	changed chan struct{}
}

func newServer(name string) *server { return &server{name: name, kinds: map[reflect.Type]*kind{}} }

func (s *server) kindOf(t reflect.Type) *kind {
	k := s.kinds[t]
	if k == nil {
		k = &kind{objects: map[types.NamespacedName]client.Object{}, changed: make(chan struct{})}
		s.kinds[t] = k
	}
	return k
}

// note records a broker's request once it has an answer.
func (s *server) note(r *judge.Request) {
	r.Until = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, *r)
}

func keyOf(o client.Object) types.NamespacedName { return client.ObjectKeyFromObject(o) }

func resourceOf(t reflect.Type) schema.GroupResource {
	return schema.GroupResource{Resource: t.Elem().Name()}
}

// requestOf returns a request that begins now.
func requestOf(p *process, verb string, t reflect.Type, key types.NamespacedName) *judge.Request {
	return &judge.Request{At: time.Now(), By: p.name, Verb: verb, Kind: resourceOf(t).Resource, Name: key}
}

// find returns the stored object. Callers must not change it.
func (s *server) find(t reflect.Type, key types.NamespacedName) (client.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.kindOf(t).objects[key]; o != nil {
		return o, nil
	}
	return nil, kerrors.NewNotFound(resourceOf(t), key.Name)
}

// all returns the stored objects of a type, sorted by name. Callers must not change them.
func (s *server) all(t reflect.Type) []client.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sorted(s.kindOf(t).objects)
}

func sorted(objects map[types.NamespacedName]client.Object) []client.Object {
	list := make([]client.Object, 0, len(objects))
	for _, o := range objects {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return list
}

// since returns the changes of a type starting at number from, and a channel that is closed at the next change.
func (s *server) since(t reflect.Type, from int) ([]change, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kindOf(t)
	return k.record[from:], k.changed
}

func copyOf[T client.Object](o T) T { return o.DeepCopyObject().(T) }

// set stores an object; nil removes it. The caller holds mu.
func (s *server) set(by string, t reflect.Type, key types.NamespacedName, after client.Object) {
	k := s.kindOf(t)
	before := k.objects[key]
	s.version++
	if after == nil {
		delete(k.objects, key)
	} else {
		after.SetResourceVersion(strconv.Itoa(s.version))
		k.objects[key] = after
	}
	k.record = append(k.record, change{At: time.Now(), By: by, Before: before, After: after})
	close(k.changed)
	k.changed = make(chan struct{})
}

// create stores a new object with a new UID and version.
func (s *server) create(by string, o client.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, key := reflect.TypeOf(o), keyOf(o)
	if s.kindOf(t).objects[key] != nil {
		return kerrors.NewAlreadyExists(resourceOf(t), key.Name)
	}
	o.SetUID(types.UID(fmt.Sprintf("%s-%d", s.name, s.version)))
	o.SetCreationTimestamp(metav1.NewTime(time.Now()))
	o.SetGeneration(1)
	fresh := copyOf(o)
	s.set(by, t, key, fresh)
	o.SetResourceVersion(fresh.GetResourceVersion())
	return nil
}

// stored returns the stored object of the name and type of o. The caller holds mu.
func (s *server) stored(o client.Object) (client.Object, error) {
	if found := s.kindOf(reflect.TypeOf(o)).objects[keyOf(o)]; found != nil {
		return found, nil
	}
	return nil, kerrors.NewNotFound(resourceOf(reflect.TypeOf(o)), o.GetName())
}

// update applies change to a copy of an object, and stores the copy if it differs. It returns the error of change.
func (s *server) update(by string, o client.Object, status bool, change func(fresh client.Object) error) (client.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.stored(o)
	if err != nil {
		return nil, err
	}
	fresh := copyOf(before)
	if err := change(fresh); err != nil {
		return nil, err
	}
	return s.store(by, before, fresh, status)
}

// replace stores an object, which the caller does not change later, in place of the one with its name, if it differs.
func (s *server) replace(by string, o client.Object, status bool) (client.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.stored(o)
	if err != nil {
		return nil, err
	}
	return s.store(by, before, o, status)
}

// store replaces a stored object with fresh, if that differs, and returns the stored object. The caller holds mu.
func (s *server) store(by string, before, fresh client.Object, status bool) (client.Object, error) {
	t, key := reflect.TypeOf(before), keyOf(before)
	if version := fresh.GetResourceVersion(); version != "" && version != before.GetResourceVersion() {
		return nil, kerrors.NewConflict(resourceOf(t), key.Name, fmt.Errorf("version %s, not %s", before.GetResourceVersion(), version))
	}
	if fresh.GetUID() != before.GetUID() {
		return nil, kerrors.NewConflict(resourceOf(t), key.Name, fmt.Errorf("UID %s, not %s", before.GetUID(), fresh.GetUID()))
	}
	fresh, unchanged := separated(before, fresh, status)
	if unchanged {
		return before, nil
	}
	if g := fresh.GetDeletionGracePeriodSeconds(); fresh.GetDeletionTimestamp() != nil && len(fresh.GetFinalizers()) == 0 &&
		len(before.GetFinalizers()) > 0 && (g == nil || *g == 0) {
		s.set(by, t, key, nil)
		return fresh, nil
	}
	s.set(by, t, key, fresh)
	return fresh, nil
}

// separated returns an object with the old status, or, for a status update, with everything but the status as before. It
// returns true if that is the same as before. It shares parts with before: nothing that is stored is ever changed.
func separated(before, fresh client.Object, status bool) (separate client.Object, unchanged bool) {
	was, is := reflect.ValueOf(before).Elem(), reflect.ValueOf(fresh).Elem()
	if status {
		if before, after := was.FieldByName("Status"), is.FieldByName("Status"); before.IsValid() {
			kept := reflect.New(was.Type())
			kept.Elem().Set(was)
			kept.Elem().FieldByName("Status").Set(after)
			return kept.Interface().(client.Object), same(before, after)
		}
	}
	fresh.SetResourceVersion(before.GetResourceVersion())
	unchanged = true
	for i := was.NumField() - 1; i >= 0; i-- { // The spec before the metadata: it differs more often.
		switch name := was.Type().Field(i).Name; {
		case name == "Status":
			is.Field(i).Set(was.Field(i))
		case !unchanged:
		case !same(was.Field(i), is.Field(i)):
			if unchanged = false; name == "Spec" && was.FieldByName("Status").IsValid() {
				fresh.SetGeneration(before.GetGeneration() + 1)
			}
		}
	}
	return fresh, unchanged
}

// whole are the structs that are compared as a whole.
var whole = []reflect.Type{reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[resource.Quantity]()}

// same reports whether two values are equal to equality.Semantic. It does not compare shared references.
func same(a, b reflect.Value) bool {
	switch kind := a.Kind(); {
	case kind == reflect.Struct && !slices.Contains(whole, a.Type()):
		for i := range a.NumField() {
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case kind == reflect.Slice || kind == reflect.Map || kind == reflect.Pointer:
		if a.UnsafePointer() == b.UnsafePointer() && (kind != reflect.Slice || a.Len() == b.Len()) {
			return true
		}
	case kind < reflect.Array || kind == reflect.String:
		return a.Equal(b)
	}
	return equality.Semantic.DeepEqual(a.Interface(), b.Interface())
}

// patch applies a merge patch; for the status of pods, a strategic merge patch.
func (s *server) patch(by string, o client.Object, kind types.PatchType, body []byte, status bool) (client.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.stored(o)
	if err != nil {
		return nil, err
	}
	// The patched object shares all that the patch does not change.
	patched := reflect.New(reflect.TypeOf(o).Elem())
	patched.Elem().Set(reflect.ValueOf(before).Elem())
	fresh := patched.Interface().(client.Object)
	fresh.SetResourceVersion("") // Compare only a resourceVersion that is in the patch.
	apply := mergeInto
	if kind == types.StrategicMergePatchType {
		apply = strategicMergeInto
	}
	if err := apply(fresh, body); err != nil {
		return nil, kerrors.NewBadRequest(err.Error())
	}
	// In JSON times have no fractions of a second.
	fresh.SetCreationTimestamp(metav1.NewTime(fresh.GetCreationTimestamp().Truncate(time.Second)))
	if at := fresh.GetDeletionTimestamp(); at != nil {
		fresh.SetDeletionTimestamp(ptr.To(metav1.NewTime(at.Truncate(time.Second))))
	}
	return s.store(by, before, fresh, status)
}

// strategicMergeInto applies a strategic merge patch to the metadata and the status of an object, which it changes.
func strategicMergeInto(o any, patch []byte) error {
	pod, is := o.(*corev1.Pod)
	if !is {
		return fmt.Errorf("a strategic merge patch of a %T is not simulated", o)
	}
	original, err := json.Marshal(&corev1.Pod{ObjectMeta: pod.ObjectMeta, Status: pod.Status})
	if err != nil {
		return err
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch, pod)
	if err != nil {
		return err
	}
	*pod = corev1.Pod{TypeMeta: pod.TypeMeta, Spec: pod.Spec}
	return json.Unmarshal(merged, pod)
}

// remove deletes an object. A pod is deleted after its grace period, an object with finalizers after they are removed.
func (s *server) remove(by string, o client.Object, grace *int64, only *metav1.Preconditions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, key := reflect.TypeOf(o), keyOf(o)
	before := s.kindOf(t).objects[key]
	if before == nil {
		return kerrors.NewNotFound(resourceOf(t), key.Name)
	}
	if only != nil && (only.UID != nil && *only.UID != before.GetUID() ||
		only.ResourceVersion != nil && *only.ResourceVersion != before.GetResourceVersion()) {
		return kerrors.NewConflict(resourceOf(t), key.Name, fmt.Errorf("precondition"))
	}
	seconds := int64(0)
	if pod, is := before.(*corev1.Pod); is && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		if seconds = 30; grace != nil {
			seconds = *grace
		}
		if pod.Spec.NodeName == "" { // No kubelet has to stop it (CheckGracefulDelete of Kubernetes' pkg/registry/core/pod).
			seconds = 0
		}
	}
	if seconds == 0 && len(before.GetFinalizers()) == 0 {
		s.set(by, t, key, nil)
		return nil
	}
	if g := before.GetDeletionGracePeriodSeconds(); before.GetDeletionTimestamp() != nil && (seconds > 0 || g == nil || *g == 0) {
		return nil
	}
	fresh, at := copyOf(before), metav1.NewTime(time.Now().Add(time.Duration(seconds)*time.Second))
	fresh.SetDeletionTimestamp(&at)
	fresh.SetDeletionGracePeriodSeconds(&seconds)
	s.set(by, t, key, fresh)
	return nil
}
