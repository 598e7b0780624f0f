package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What ends is tried again after a time that grows, unless it lasted longer than the longest.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// follower is told what a list holds: all of it at first and after every gap, and in between what changes. Objects are
// by namespace and name.
type follower interface {
	all(objects []client.Object) error
	changed(o client.Object) error
	gone(o client.Object) error
}

// follow tells a follower of the objects of a list until ctx ends, which is no error, or it cannot go on: the follower
// fails, or the API server refuses. Whatever else goes wrong is said and tried again.
func (s *Session) follow(ctx context.Context, empty client.ObjectList, options []client.ListOption, to follower) error {
	// client-go's own complaints would be in the way: what a person must know is said here and by the source.
	ctx = klog.NewContext(ctx, logr.Discard())
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	reflector := cache.NewReflectorWithOptions(s.source(empty, options), nil, &store{to: to, stop: stop},
		cache.ReflectorOptions{Name: "follow", TypeDescription: fmt.Sprintf("%T", empty)})
	var backoff wait.Backoff
	var began time.Time
	for {
		if time.Since(began) > lastRetry {
			backoff = wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.5, Steps: 10, Cap: lastRetry}
		}
		began = time.Now()
		err := reflector.ListAndWatchWithContext(ctx)
		var failed *followerError
		if cause := context.Cause(ctx); errors.As(cause, &failed) {
			return failed.error
		}
		if refused(err) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			s.warn("trying again: " + word(err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff.Step()):
		}
	}
}

func (s *Session) warn(text string) { fmt.Fprintln(s.Err, "warning: "+text) }

// refused says whether the API server's answer will be the same the next time.
func refused(err error) bool {
	return kerrors.IsForbidden(err) || kerrors.IsUnauthorized(err) || kerrors.IsNotFound(err) ||
		kerrors.IsMethodNotSupported(err) || kerrors.IsBadRequest(err) || kerrors.IsInvalid(err)
}

// followerError is why a follower could not go on.
type followerError struct{ error }

// store is where a reflector leaves what it sees.
type store struct {
	to   follower
	stop context.CancelCauseFunc
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(items []any, _ string) error {
	objects := make([]client.Object, 0, len(items))
	for _, item := range items {
		if o, ok := item.(client.Object); ok {
			objects = append(objects, o)
		}
	}
	sortByName(objects)
	return s.check(s.to.all(objects))
}

// Add implements cache.ReflectorStore.
func (s *store) Add(item any) error { return s.tell(item, s.to.changed) }

// Update implements cache.ReflectorStore.
func (s *store) Update(item any) error { return s.tell(item, s.to.changed) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(item any) error { return s.tell(item, s.to.gone) }

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }

func (s *store) tell(item any, how func(client.Object) error) error {
	o, ok := item.(client.Object)
	if !ok {
		return nil
	}
	return s.check(how(o))
}

func (s *store) check(err error) error {
	if err != nil {
		s.stop(&followerError{err})
	}
	return err
}
