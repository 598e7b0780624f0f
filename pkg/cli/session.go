package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is how many objects are asked for at once, as by kubectl.
const pageSize = 500

// Session is one call of a person: the cluster that it is about, and where the answer goes.
type Session struct {
	Client client.WithWatch
	// Namespace is the one of the call.
	Namespace string
	// RequestTimeout bounds each request that is not a watch; 0 for none.
	RequestTimeout time.Duration
	Now            func() time.Time
	// Out is for the answer, Err for what is said besides.
	Out, Err io.Writer
}

// bounded is the context of one request.
func (s *Session) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.RequestTimeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, s.RequestTimeout)
}

func (s *Session) get(ctx context.Context, key client.ObjectKey, into client.Object) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.Client.Get(ctx, key, into)
}

// list returns all objects of the kind of an empty list, by namespace and name, page by page.
func (s *Session) list(ctx context.Context, empty client.ObjectList, options ...client.ListOption) ([]client.Object, error) {
	var all []client.Object
	next := ""
	for {
		page, ok := empty.DeepCopyObject().(client.ObjectList)
		if !ok {
			return nil, errNoObject(empty)
		}
		if err := s.page(ctx, page, append(slices.Clone(options), client.Limit(pageSize), client.Continue(next))); err != nil {
			return nil, err
		}
		err := meta.EachListItem(page, func(item runtime.Object) error {
			o, ok := item.(client.Object)
			if !ok {
				return errNoObject(item)
			}
			all = append(all, o)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if next = page.GetContinue(); next == "" {
			sortByName(all)
			return all, nil
		}
	}
}

func (s *Session) page(ctx context.Context, into client.ObjectList, options []client.ListOption) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.Client.List(ctx, into, options...)
}

func sortByName(objects []client.Object) { slices.SortFunc(objects, byName) }

func byName(a, b client.Object) int {
	if c := strings.Compare(a.GetNamespace(), b.GetNamespace()); c != 0 {
		return c
	}
	return strings.Compare(a.GetName(), b.GetName())
}

// identify gives an object the kind that typed clients leave out, and takes away what nobody reads.
func (s *Session) identify(o client.Object) error {
	kind, err := s.Client.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	o.GetObjectKind().SetGroupVersionKind(kind)
	o.SetManagedFields(nil)
	return nil
}

// age words the time since a moment as kubectl does.
func (s *Session) age(since metav1.Time) string {
	return age(s.Now(), since.Time)
}
