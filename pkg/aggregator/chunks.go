package aggregator

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// chunkSize is the number of objects in one read. Consumers decide on the number and the size of the objects.
const chunkSize = 100

// inChunks lists objects and visits each chunk of them.
func inChunks[T any, L interface {
	*T
	client.ObjectList
}](ctx context.Context, reader client.Reader, visit func(L), options ...client.ListOption) error {
	for next := ""; ; {
		list := L(new(T)) // A new one, because the decoder merges into an existing one.
		chunk := append([]client.ListOption{client.Limit(chunkSize), client.Continue(next)}, options...)
		if err := reader.List(ctx, list, chunk...); err != nil {
			return err
		}
		visit(list)
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}
