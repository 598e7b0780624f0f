package auth

import (
	"context"
	"crypto/sha256"

	"golang.org/x/sync/singleflight"
)

// flight merges concurrent requests to the API server with the same question into one.
type flight[T any] struct {
	asking singleflight.Group
}

// Do returns the result of ask within 10 s, or the error of ctx if that ends first. The end of the first caller's ctx
// does not end ask for the others.
func (f *flight[T]) Do(ctx context.Context, question [sha256.Size]byte, ask func(ctx context.Context) (T, error)) (T, error) {
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
