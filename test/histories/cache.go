package histories

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mirror is the cache that one process has of one server: one informer per requested type. Each informer lags
// independently.
type mirror struct {
	process *process
	server  *server
	weather *weather
	// unbound includes pods that are not bound to a Node.
	unbound bool

	mu        sync.Mutex
	informers map[reflect.Type]*informer
	// indexes maps a field to its indexer.
	indexes map[string]client.IndexerFunc
}

func newMirror(p *process, s *server, w *weather) *mirror {
	return &mirror{process: p, server: s, weather: w, informers: map[reflect.Type]*informer{}, indexes: map[string]client.IndexerFunc{}}
}

// informer returns the informer of a type. It starts the informer at the first call.
func (m *mirror) informer(t reflect.Type) *informer {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.informers[t]
	if i == nil {
		i = &informer{mirror: m, of: t, objects: map[types.NamespacedName]client.Object{}, synced: make(chan struct{})}
		m.informers[t] = i
		go i.run()
	}
	return i
}

// drop makes all watches of the process lose their connection; they list again at the given time.
func (m *mirror) drop(until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.informers {
		i.mu.Lock()
		i.relist = until
		i.mu.Unlock()
	}
}

// hold makes all watches of the process deliver no events until the given time.
func (m *mirror) hold(until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.informers {
		i.mu.Lock()
		i.held = until
		i.mu.Unlock()
	}
}

// Get implements client.Reader.
func (m *mirror) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if err := m.process.gate(); err != nil {
		return err
	}
	i := m.informer(reflect.TypeOf(into))
	if err := i.waitSynced(ctx); err != nil {
		return err
	}
	var options client.GetOptions
	for _, o := range opts {
		o.ApplyToGet(&options)
	}
	return assign(i.get(key), key, into, ptr.Deref(options.UnsafeDisableDeepCopy, false))
}

// List implements client.Reader.
func (m *mirror) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	if err := m.process.gate(); err != nil {
		return err
	}
	i := m.informer(itemsIn(into).of)
	if err := i.waitSynced(ctx); err != nil {
		return err
	}
	var options client.ListOptions
	for _, o := range opts {
		o.ApplyToList(&options)
	}
	objects := i.list()
	if options.FieldSelector != nil {
		objects = slices.DeleteFunc(slices.Clone(objects), func(o client.Object) bool { return !m.matches(o, options.FieldSelector) })
	}
	return fill(into, objects, opts)
}

// GetInformer implements cache.Informers.
func (m *mirror) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return m.informer(reflect.TypeOf(o)), nil
}

// GetInformerForKind implements cache.Informers.
func (*mirror) GetInformerForKind(context.Context, schema.GroupVersionKind, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, fmt.Errorf("informers are for types here")
}

// RemoveInformer implements cache.Informers.
func (*mirror) RemoveInformer(context.Context, client.Object) error { return nil }

// Start implements cache.Informers.
func (m *mirror) Start(ctx context.Context) error { <-ctx.Done(); return nil }

// WaitForCacheSync implements cache.Informers.
func (m *mirror) WaitForCacheSync(ctx context.Context) bool {
	m.mu.Lock()
	informers := make([]*informer, 0, len(m.informers))
	for _, i := range m.informers {
		informers = append(informers, i)
	}
	m.mu.Unlock()
	for _, i := range informers {
		if i.waitSynced(ctx) != nil {
			return false
		}
	}
	return true
}

// IndexField implements client.FieldIndexer.
func (m *mirror) IndexField(_ context.Context, _ client.Object, field string, values client.IndexerFunc) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.indexes[field] = values
	return nil
}

// matches reports whether an object has the field values that a selector requires. A field without an indexer always
// matches: all pods in the cache are of one Node.
func (m *mirror) matches(o client.Object, selector fields.Selector) bool {
	for _, required := range selector.Requirements() {
		m.mu.Lock()
		values := m.indexes[required.Field]
		m.mu.Unlock()
		if values != nil && !slices.Contains(values(o), required.Value) {
			return false
		}
	}
	return true
}

// informer mirrors the objects of one type. It implements cache.Informer.
type informer struct {
	mirror *mirror
	of     reflect.Type
	// synced is closed after the first list.
	synced chan struct{}

	mu      sync.Mutex
	objects map[types.NamespacedName]client.Object
	// listed are the objects by name, until one changes; nil then.
	listed   []client.Object
	handlers []toolscache.ResourceEventHandler
	// relist is when a watch that lost its connection lists again. The informer delivers no events before held.
	relist, held time.Time
}

func (i *informer) waitSynced(ctx context.Context) error {
	select {
	case <-i.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-i.mirror.process.ctx.Done():
		return errKilled
	}
}

func (i *informer) get(key types.NamespacedName) client.Object {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.objects[key]
}

// list returns all objects, sorted by name. Callers must not change the list.
func (i *informer) list() []client.Object {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.listed == nil {
		i.listed = sorted(i.objects)
	}
	return i.listed
}

// run delivers the server's changes, each after a lag.
func (i *informer) run() {
	p, w, name := i.mirror.process, i.mirror.weather, i.mirror.process.name+" watches "+i.of.String()
	number := 0
	for {
		// The first list, and each list after a lost connection, may be answered from a watch cache that lags as well.
		if w.accepted(p.ctx, p, true) != nil || w.answered(p.name, "list "+i.of.String()) != nil {
			if !p.sleep(p.ctx, time.Second) {
				return
			}
			continue
		}
		if !p.sleep(p.ctx, w.lagNow(name)) || p.gate() != nil {
			return
		}
		number = i.catchUp(time.Now().Add(-w.lagNow(name)), number)
		if lost := i.follow(name, &number); !lost {
			return
		}
	}
}

// follow delivers changes until the connection is lost and the time to list again has come. It returns false if the
// process has ended.
func (i *informer) follow(name string, number *int) (lost bool) {
	p, w := i.mirror.process, i.mirror.weather
	for {
		changes, more := i.mirror.server.since(i.of, *number)
		for n := range changes {
			if !p.sleepUntil(p.ctx, changes[n].At.Add(w.lagNow(name))) || !p.sleepUntil(p.ctx, i.heldUntil()) {
				return false
			}
			if i.loses() {
				return p.sleepUntil(p.ctx, i.relistAt())
			}
			i.show(keyOf(changes[n].Object()), changes[n].After)
			*number++
		}
		if len(changes) > 0 {
			continue
		}
		select {
		case <-more:
		case <-p.ctx.Done():
			return false
		}
	}
}

func (i *informer) relistAt() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.relist
}

func (i *informer) heldUntil() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.held
}

// loses reports whether the connection is lost.
func (i *informer) loses() bool { return i.relistAt().After(time.Now()) }

// catchUp delivers the state at a moment, without the intermediate changes, and returns the number of the next change.
// It never goes back behind the changes already delivered: client-go's Reflector lists from the last version that it
// has seen.
func (i *informer) catchUp(moment time.Time, least int) int {
	changes, _ := i.mirror.server.since(i.of, 0)
	then, number := map[types.NamespacedName]client.Object{}, 0
	for ; number < len(changes) && (number < least || !changes[number].At.After(moment)); number++ {
		if c := &changes[number]; c.After == nil {
			delete(then, keyOf(c.Before))
		} else {
			then[keyOf(c.After)] = c.After
		}
	}
	i.mu.Lock()
	var gone []types.NamespacedName
	for key := range i.objects {
		if then[key] == nil {
			gone = append(gone, key)
		}
	}
	i.mu.Unlock()
	for _, key := range gone {
		i.show(key, nil)
	}
	for _, o := range sorted(then) {
		i.show(keyOf(o), o)
	}
	select {
	case <-i.synced:
	default:
		close(i.synced)
	}
	return number
}

// show updates the cache with an object's current state and calls the handlers; nil means that the object is gone.
func (i *informer) show(key types.NamespacedName, now client.Object) {
	if pod, is := now.(*corev1.Pod); is && pod.Spec.NodeName == "" && !i.mirror.unbound {
		now = nil // The watch selects pods that are bound to a Node.
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	before := i.objects[key]
	i.listed = nil
	if now == nil {
		delete(i.objects, key)
	} else {
		i.objects[key] = now
	}
	for _, handler := range i.handlers {
		switch {
		case now == nil && before != nil:
			handler.OnDelete(before)
		case now != nil && before == nil:
			handler.OnAdd(now, false)
		case now != nil && before != now:
			handler.OnUpdate(before, now)
		}
	}
}

// AddEventHandler implements cache.Informer.
func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	// A new handler gets the objects of the cache in the order of a map (AddEventHandlerWithOptions in client-go's
	// tools/cache).
	p, list := i.mirror.process, sorted(i.objects)
	i.mirror.weather.shuffle(p.name+" handles "+i.of.String(), len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
	for _, o := range list {
		handler.OnAdd(o, true)
	}
	i.handlers = append(i.handlers, handler)
	return i, nil
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i *informer) AddEventHandlerWithResyncPeriod(handler toolscache.ResourceEventHandler, _ time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i *informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, _ toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

// RemoveEventHandler implements cache.Informer.
func (*informer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error { return nil }

// AddIndexers implements cache.Informer.
func (*informer) AddIndexers(toolscache.Indexers) error { return nil }

// HasSynced implements cache.Informer.
func (i *informer) HasSynced() bool {
	select {
	case <-i.synced:
		return true
	default:
		return false
	}
}

// IsStopped implements cache.Informer.
func (i *informer) IsStopped() bool { return i.mirror.process.ctx.Err() != nil }
