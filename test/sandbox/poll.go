package sandbox

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const pollEvery = 50 * time.Millisecond

// poll calls check until it returns nil or ctx ends; then it returns the last error.
func poll(ctx context.Context, check func(context.Context) error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), last)
		case <-tick.C:
		}
	}
}

// Eventually calls check until it returns nil, or returns its last error after a timeout that is longer on an overloaded
// machine (Crowded).
func Eventually(ctx context.Context, timeout time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Crowded(timeout))
	defer cancel()
	return poll(ctx, check)
}

// splitImage splits NAME:TAG.
func splitImage(image string) (name, tag string) {
	i := strings.LastIndexByte(image, ':')
	return image[:i], image[i+1:]
}
