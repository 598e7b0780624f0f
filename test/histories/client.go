package histories

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
)

// itemsOf is the field with the items of a list, and the type of a pointer to an item.
type itemsOf struct {
	field int
	of    reflect.Type
}

// itemTypes has the result of itemsIn by the type of a list.
var itemTypes sync.Map

func itemsIn(list client.ObjectList) itemsOf {
	t := reflect.TypeOf(list)
	if known, is := itemTypes.Load(t); is {
		return known.(itemsOf)
	}
	field, _ := t.Elem().FieldByName("Items")
	items := itemsOf{field: field.Index[0], of: reflect.PointerTo(field.Type.Elem())}
	itemTypes.Store(t, items)
	return items
}

// assign copies an object into another, which shares all references of the object if shared is true. It returns an error
// if the object is nil.
func assign(from client.Object, key types.NamespacedName, into client.Object, shared bool) error {
	if from == nil {
		return kerrors.NewNotFound(resourceOf(reflect.TypeOf(into)), key.Name)
	}
	if !shared {
		from = copyOf(from)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(from).Elem())
	return nil
}

// fill copies the objects that match into a list.
func fill(into client.ObjectList, objects []client.Object, opts []client.ListOption) error {
	var options client.ListOptions
	for _, o := range opts {
		o.ApplyToList(&options)
	}
	items := reflect.ValueOf(into).Elem().Field(itemsIn(into).field)
	items.Set(reflect.MakeSlice(items.Type(), 0, len(objects)))
	for _, o := range objects {
		if options.Namespace != "" && o.GetNamespace() != options.Namespace ||
			options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(o.GetLabels())) {
			continue
		}
		if options.UnsafeDisableDeepCopy == nil || !*options.UnsafeDisableDeepCopy {
			o = copyOf(o)
		}
		items.Set(reflect.Append(items, reflect.ValueOf(o).Elem()))
	}
	return nil
}

// live reads from the API server. It implements client.Reader.
type live struct {
	process *process
	server  *server
	weather *weather
}

func (l live) request(ctx context.Context, verb string, t reflect.Type, key types.NamespacedName, writes bool, do func() error) error {
	defer l.server.note(requestOf(l.process, verb, t, key))
	return l.process.request(ctx, l.weather, verb+" "+t.String()+" "+key.String(), writes, do)
}

func (l live) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	t := reflect.TypeOf(into)
	return l.request(ctx, "get", t, key, false, func() error {
		found, err := l.server.find(t, key)
		if err != nil {
			return err
		}
		return assign(found, key, into, false)
	})
}

func (l live) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	t := itemsIn(into).of
	return l.request(ctx, "list", t, types.NamespacedName{}, false, func() error {
		return fill(into, slices.DeleteFunc(l.server.all(t), func(o client.Object) bool {
			pod, is := o.(*corev1.Pod)
			return is && pod.Spec.NodeName == "" // Pods are listed by spec.nodeName.
		}), opts)
	})
}

// cachedClient reads from a mirror and writes to the server if may allows it. It implements client.Client.
type cachedClient struct {
	*mirror
	live
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	may    func() error
}

func (c *cachedClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	c.live.server.note(requestOf(c.live.process, judge.FromCache, reflect.TypeOf(into), key))
	return c.mirror.Get(ctx, key, into, opts...)
}

func (c *cachedClient) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	return c.mirror.List(ctx, into, opts...)
}

func (c *cachedClient) Scheme() *runtime.Scheme     { return c.scheme }
func (c *cachedClient) RESTMapper() meta.RESTMapper { return c.mapper }

func (c *cachedClient) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	kinds, _, err := c.scheme.ObjectKinds(o)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return kinds[0], nil
}

func (*cachedClient) IsObjectNamespaced(runtime.Object) (bool, error) { return true, nil }

// write sends a write if the process may write, and copies the stored object into o.
func (c *cachedClient) write(ctx context.Context, verb string, o client.Object, do func() (client.Object, error)) error {
	if err := c.live.process.gate(); err != nil {
		return err
	}
	if err := c.may(); err != nil {
		return err
	}
	return c.request(ctx, verb, reflect.TypeOf(o), keyOf(o), true, func() error {
		stored, err := do()
		if err != nil || stored == nil {
			return err
		}
		return assign(stored, keyOf(o), o, false)
	})
}

func (c *cachedClient) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	return c.write(ctx, "create", o, func() (client.Object, error) { return nil, c.live.server.create(c.live.process.name, o) })
}

func (c *cachedClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	var options client.DeleteOptions
	for _, opt := range opts {
		opt.ApplyToDelete(&options)
	}
	return c.write(ctx, "delete", o, func() (client.Object, error) {
		return nil, c.live.server.remove(c.live.process.name, o, options.GracePeriodSeconds, options.Preconditions)
	})
}

func (c *cachedClient) Update(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
	return c.replace(ctx, o, false)
}

func (c *cachedClient) replace(ctx context.Context, o client.Object, status bool) error {
	return c.write(ctx, "update", o, func() (client.Object, error) {
		return c.live.server.replace(c.live.process.name, copyOf(o), status)
	})
}

func (c *cachedClient) Patch(ctx context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return c.patch(ctx, o, patch, false)
}

func (c *cachedClient) patch(ctx context.Context, o client.Object, patch client.Patch, status bool) error {
	body, err := patch.Data(o)
	if err != nil {
		return err
	}
	return c.write(ctx, "patch", o, func() (client.Object, error) {
		return c.live.server.patch(c.live.process.name, o, patch.Type(), body, status)
	})
}

func (*cachedClient) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return fmt.Errorf("server-side apply is not simulated")
}

func (*cachedClient) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return fmt.Errorf("deletion of a collection is not simulated")
}

func (c *cachedClient) Status() client.SubResourceWriter            { return statusWriter{c} }
func (c *cachedClient) SubResource(string) client.SubResourceClient { return statusWriter{c} }

// statusWriter writes the status subresource, the only one that is simulated.
type statusWriter struct{ *cachedClient }

func (statusWriter) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return fmt.Errorf("a subresource is not read")
}

func (statusWriter) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return fmt.Errorf("a subresource is not created")
}

func (w statusWriter) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return w.replace(ctx, o, true)
}

func (w statusWriter) Patch(ctx context.Context, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return w.patch(ctx, o, patch, true)
}

func (statusWriter) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return fmt.Errorf("server-side apply is not simulated")
}
