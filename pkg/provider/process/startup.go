package process

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Eventually calls get until it succeeds, with back-off, for at most the startup timeout: the controllers of Liqo may
// create the objects after this process starts, and an API server may be restarting.
func Eventually[T any](ctx context.Context, log logr.Logger, timeout time.Duration, what string, get func(context.Context) (T, error),
) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 6, Cap: 10 * time.Second}

	for {
		// get runs with ctx, not with the bounded context: goroutines that it starts may outlive this function.
		value, err := get(ctx)
		if err == nil {
			return value, nil
		}
		pause := time.NewTimer(backoff.Step())
		select {
		case <-pause.C:
			log.Info("Waiting", "for", what, "reason", err.Error())
		case <-bounded.Done():
			pause.Stop()
			var none T
			if ctx.Err() != nil {
				return none, ctx.Err()
			}
			return none, fmt.Errorf("%s: %w (gave up after %s, --startup-timeout)", what, err, timeout)
		}
	}
}

// WaitFor waits until done is closed. It returns an error if ctx ends or the timeout expires first.
func WaitFor(ctx context.Context, done <-chan struct{}, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("gave up after %s, --startup-timeout", timeout)
	}
}
