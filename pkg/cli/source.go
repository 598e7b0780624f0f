package cli

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// source lists and watches for a reflector.
type source struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported has the reflector list before it watches: every API server can do that, and a list has
// a deadline.
func (source) IsWatchListSemanticsUnSupported() bool { return true }

func (s *Session) source(empty client.ObjectList, options []client.ListOption) source {
	lost := false
	return source{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			if raw.ResourceVersion == "0" {
				raw.ResourceVersion = "" // What the API server remembers may be older than what the person has done.
			}
			page, ok := empty.DeepCopyObject().(client.ObjectList)
			if !ok {
				return nil, errNoObject(empty)
			}
			return page, s.page(ctx, page, append(slices.Clone(options),
				&client.ListOptions{Raw: &raw, Limit: raw.Limit, Continue: raw.Continue}))
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			raw.Watch = true
			w, err := s.watchOnce(ctx, empty, options, &raw)
			if err != nil && !lost && ctx.Err() == nil && !refused(err) {
				// The reflector goes on trying, and says nothing.
				s.warn("the connection is lost, trying again: " + word(err))
			}
			lost = err != nil
			return w, err
		},
	}}
}

// watchOnce has the watch end some time after the API server should have ended it.
func (s *Session) watchOnce(ctx context.Context, empty client.ObjectList, options []client.ListOption,
	raw *metav1.ListOptions,
) (watch.Interface, error) {
	cancel := func() {}
	if raw.TimeoutSeconds != nil {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*raw.TimeoutSeconds)*time.Second+s.RequestTimeout)
	}
	w, err := s.Client.Watch(ctx, empty, append(slices.Clone(options), &client.ListOptions{Raw: raw})...)
	if err != nil {
		cancel()
		return nil, err
	}
	return &boundedWatch{Interface: w, cancel: cancel}, nil
}

// boundedWatch is a watch that has a context of its own.
type boundedWatch struct {
	watch.Interface
	cancel context.CancelFunc
}

// Stop implements watch.Interface.
func (w *boundedWatch) Stop() {
	w.Interface.Stop()
	w.cancel()
}
