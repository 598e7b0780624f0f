package access

import (
	"context"
	"crypto/sha256"

	"golang.org/x/sync/singleflight"
)

// Flight puts a question to the API server once for all who ask the same at the same time.
type Flight[T any] struct {
	asking singleflight.Group
}

// Do returns what ask answers within 10 s, or the error of ctx if that ends first. Who asked first may leave: the others
// still wait.
func (f *Flight[T]) Do(ctx context.Context, question [sha256.Size]byte, ask func(ctx context.Context) (T, error)) (T, error) {
	answers := f.asking.DoChan(string(question[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		return ask(ctx)
	})
	select {
	case answer := <-answers:
		value, _ := answer.Val.(T)
		return value, answer.Err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
