package informers

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Source is a kind of objects, and the handler of their changes.
type Source struct {
	Kind    client.Object
	Handler toolscache.ResourceEventHandler
}

// Objects of a kind: set is called with each existing object, and again when it has changed, remove with the name of a
// deleted one. One object is never in both calls at once; objects of two kinds may be.
func Objects[T client.Object](kind T, set func(T), remove func(types.NamespacedName)) Source {
	there := func(object any) {
		if o, ok := object.(T); ok {
			set(o)
		}
	}
	return Source{Kind: kind, Handler: toolscache.ResourceEventHandlerFuncs{
		AddFunc:    there,
		UpdateFunc: func(_, object any) { there(object) },
		DeleteFunc: func(object any) {
			if name, err := toolscache.DeletionHandlingObjectToName(object); err == nil {
				remove(types.NamespacedName{Namespace: name.Namespace, Name: name.Name})
			}
		},
	}}
}

// Run follows sources until ctx ends, and then returns nil; it calls synced when all objects that existed at its start
// have been handled. The error names the kind that the cache cannot watch. The caller starts the cache.
func Run(ctx context.Context, c cache.Cache, sources []Source, synced func()) (err error) {
	var registered []toolscache.InformerSynced
	for _, s := range sources {
		informer, registration, startErr := handle(ctx, c, s)
		if startErr != nil {
			if ctx.Err() != nil {
				return nil // It is the end of ctx: the cache may have stopped already.
			}
			return fmt.Errorf("informer of %T: %w", s.Kind, startErr)
		}
		registered = append(registered, registration.HasSynced)
		defer func() { err = errors.Join(err, informer.RemoveEventHandler(registration)) }()
	}
	if toolscache.WaitForCacheSync(ctx.Done(), registered...) {
		synced()
	}
	<-ctx.Done()
	return nil
}

func handle(ctx context.Context, c cache.Cache, s Source) (cache.Informer, toolscache.ResourceEventHandlerRegistration, error) {
	informer, err := c.GetInformer(ctx, s.Kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, nil, err
	}
	registration, err := informer.AddEventHandler(s.Handler)
	return informer, registration, err
}
