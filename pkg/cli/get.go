package cli

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// show prints what a query asks for, and with Watch what becomes of it, until ctx ends.
func (s *Session) show(ctx context.Context, v *view, q *Query) error {
	p, err := s.printer(v.columns, q)
	if err != nil {
		return err
	}
	objects, missing := s.read(ctx, v, q)
	if len(objects) > 0 || (missing == nil && !q.Watch) {
		if err := s.print(p, v, q, objects); err != nil {
			return err
		}
	}
	if missing != nil || !q.Watch {
		return missing
	}
	return s.watch(ctx, v, p, objects)
}

func (s *Session) print(p *printer, v *view, q *Query, objects []client.Object) error {
	switch {
	case q.Watch:
		return p.each(objects)
	case len(objects) == 0 && p.table != nil:
		_, err := fmt.Fprintln(s.Err, v.nothing)
		return err
	default:
		return p.all(objects, len(q.Names) == 1)
	}
}

// read returns the objects that a query asks for. Of those asked for by name it returns what there is, and an error for
// the others.
func (s *Session) read(ctx context.Context, v *view, q *Query) ([]client.Object, error) {
	if len(q.Names) == 0 {
		all, err := s.list(ctx, v.list, v.options...)
		if err != nil {
			return nil, err
		}
		var kept []client.Object
		for _, o := range all {
			if v.keep(o) {
				kept = append(kept, o)
			}
		}
		return kept, nil
	}
	var found []client.Object
	var failures []error
	for _, name := range q.Names {
		o, ok := v.one.DeepCopyObject().(client.Object)
		if !ok {
			return nil, errNoObject(v.one)
		}
		if err := s.get(ctx, client.ObjectKey{Namespace: v.namespace, Name: name}, o); err != nil {
			failures = append(failures, err)
			continue
		}
		if !v.keep(o) {
			failures = append(failures, fmt.Errorf("%s %s", name, v.unlike))
			continue
		}
		found = append(found, o)
	}
	return found, errors.Join(failures...)
}
