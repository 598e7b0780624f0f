package aggregator

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// chunkSize is how many objects are read at once. Consumers decide how many there are, and how large.
const chunkSize = 100

// inChunks lists objects and visits each chunk of them.
func inChunks[T any, L interface {
	*T
	client.ObjectList
}](ctx context.Context, reader client.Reader, visit func(L), options ...client.ListOption) error {
	for next := ""; ; {
		list := L(new(T)) // A new one, because the decoder merges into one that is there.
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
