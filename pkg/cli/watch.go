package cli

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watch shows what becomes of objects, until ctx ends. Changes that the table does not show are left out.
func (s *Session) watch(ctx context.Context, v *view, p *printer, shown []client.Object) error {
	c := &changes{v: v, p: p, shown: map[client.ObjectKey]shownObject{}}
	for _, o := range shown {
		c.remember(o)
	}
	return s.follow(ctx, v.list, v.options, c)
}

// changes is the follower that prints.
type changes struct {
	v     *view
	p     *printer
	shown map[client.ObjectKey]shownObject
}

type shownObject struct {
	mark string
	o    client.Object
}

func (c *changes) remember(o client.Object) {
	c.shown[client.ObjectKeyFromObject(o)] = shownObject{mark: c.p.mark(o), o: o}
}

func (c *changes) all(objects []client.Object) error {
	there := map[client.ObjectKey]bool{}
	for _, o := range objects {
		there[client.ObjectKeyFromObject(o)] = true
		if err := c.changed(o); err != nil {
			return err
		}
	}
	var missing []client.Object
	for key, known := range c.shown {
		if !there[key] {
			missing = append(missing, known.o)
		}
	}
	sortByName(missing)
	for _, o := range missing {
		if err := c.gone(o); err != nil {
			return err
		}
	}
	return nil
}

func (c *changes) changed(o client.Object) error {
	if !c.v.keep(o) {
		return c.gone(o)
	}
	if known, ok := c.shown[client.ObjectKeyFromObject(o)]; ok && known.mark == c.p.mark(o) {
		return nil
	}
	c.remember(o)
	return c.p.each([]client.Object{o})
}

func (c *changes) gone(o client.Object) error {
	key := client.ObjectKeyFromObject(o)
	if _, ok := c.shown[key]; !ok {
		return nil
	}
	delete(c.shown, key)
	return c.p.gone(o)
}
