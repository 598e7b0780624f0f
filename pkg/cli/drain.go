package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// DrainOptions says how long a person waits.
type DrainOptions struct {
	// Node is the broker's.
	Node string
	// Wait until the providers are empty.
	Wait bool
	// Timeout of the waiting; 0 for none. The providers go on being drained after it.
	Timeout time.Duration
}

// Why waiting ends.
var (
	errEmpty   = errors.New("every provider is empty")
	errTooLong = errors.New("it takes too long")
)

// Drain has providers emptied, and shows how their pods leave until none is left. Providers that do not exist are an
// error in the end; the others are drained all the same.
func (s *Session) Drain(ctx context.Context, providers []string, o DrainOptions) error {
	d := newDrainage(s, o.Node)
	var failures []error
	for _, id := range providers {
		pc, err := s.change(ctx, id, change{
			done: "draining", spec: map[string]any{"drain": true},
			already: func(pc *v1alpha1.ProviderCluster) bool { return pc.Spec.Drain },
		})
		if err != nil {
			failures = append(failures, err)
			continue
		}
		d.add(pc)
	}
	if o.Wait && len(d.providers) > 0 {
		if o.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, o.Timeout, errTooLong)
			defer cancel()
		}
		if err := s.await(ctx, d, o.Timeout); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// await follows a drainage to its end.
func (s *Session) await(ctx context.Context, d *drainage, timeout time.Duration) error {
	ofNode := []client.ListOption{ofNode(d.node)}
	for {
		following, stop := context.WithCancelCause(ctx)
		d.stop = stop
		group, following := errgroup.WithContext(following)
		group.Go(func() error {
			return s.follow(following, &v1alpha1.ProviderClusterList{}, nil, (*drainedProviders)(d))
		})
		group.Go(func() error { return s.follow(following, &corev1.PodList{}, ofNode, (*drainedPods)(d)) })
		err := group.Wait()
		cause := context.Cause(following)
		stop(nil)
		switch {
		case err != nil:
			return err
		case !errors.Is(cause, errEmpty):
			return d.unfinished(ctx, timeout)
		}
		// The two lists are not read at one moment: look at the pods once more.
		pods, err := s.list(ctx, &corev1.PodList{}, ofNode...)
		if err != nil {
			return err
		}
		if err := d.seePods(pods); err != nil {
			return err
		}
		if d.empty() {
			return d.report()
		}
	}
}

// unfinished says what is left when the waiting ends early.
func (d *drainage) unfinished(ctx context.Context, timeout time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	why := "interrupted"
	if errors.Is(context.Cause(ctx), errTooLong) {
		why = fmt.Sprintf("not done after %s (--timeout)", timeout)
	}
	var left []string
	for _, id := range d.ids {
		p := d.providers[id]
		switch pods := d.podsAt(id); {
		case p.noticed && len(pods) == 0:
			continue
		case p.noticed:
			left = append(left, fmt.Sprintf("%s still has %s", id, counted(pods)))
		default:
			left = append(left, fmt.Sprintf("the broker has not taken notice of %s, which has %s", id, counted(pods)))
		}
	}
	return fmt.Errorf("%s: %s; draining goes on until somebody uncordons", why, strings.Join(left, ", "))
}

// shownPods is how many pods are named in a message.
const shownPods = 5

func counted(pods []string) string {
	if len(pods) == 0 {
		return "no pods"
	}
	noun := "pods"
	if len(pods) == 1 {
		noun = "pod"
	}
	names := strings.Join(pods[:min(len(pods), shownPods)], ", ")
	if len(pods) > shownPods {
		names += ", …"
	}
	return fmt.Sprintf("%d %s (%s)", len(pods), noun, names)
}
