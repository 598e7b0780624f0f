package kubectl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// drainPollInterval is the time between two reads of a ProviderCluster that is being drained.
const drainPollInterval = time.Second

// notObserved is shown until the broker has set the condition Drained for the current spec.
const notObserved = "the broker has not observed the drain yet"

// DrainOptions configures Drain.
type DrainOptions struct {
	// Wait until the condition Drained of each provider is True.
	Wait bool
	// Timeout of the wait; 0 for none. It does not end the drain.
	Timeout time.Duration
}

// Drain sets spec.drain of the providers, and with Wait prints their condition Drained until it is True. A provider
// that does not exist is an error at the end; the others are drained.
func (s *Session) Drain(ctx context.Context, providers []string, o DrainOptions) error {
	d := &drain{s: s}
	for _, id := range providers {
		pc, err := s.change(ctx, id, change{
			done: "draining", spec: map[string]any{"drain": true},
			already: func(pc *v1alpha1.ProviderCluster) bool { return pc.Spec.Drain },
		})
		if err != nil {
			d.failures = append(d.failures, err)
			continue
		}
		d.waiting = append(d.waiting, &drainedProvider{id: id, uid: pc.UID, message: notObserved})
	}
	if o.Wait {
		d.wait(ctx, o.Timeout)
	}
	return errors.Join(d.failures...)
}

// drain is a wait for several providers.
type drain struct {
	s        *Session
	waiting  []*drainedProvider
	failures []error
	// warned is set after a failed request, until one succeeds.
	warned bool
}

// drainedProvider is a provider whose condition Drained is not True yet.
type drainedProvider struct {
	id string
	// uid is the UID of the object that was changed.
	uid types.UID
	// message of the condition that was printed last.
	message string
}

// wait reads one ProviderCluster after the other until no provider is waiting. A failure of one does not end the wait
// for the others.
func (d *drain) wait(ctx context.Context, timeout time.Duration) {
	waiting := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	err := wait.PollUntilContextCancel(waiting, drainPollInterval, true, func(ctx context.Context) (bool, error) {
		d.waiting = slices.DeleteFunc(d.waiting, func(p *drainedProvider) bool {
			done, err := d.poll(ctx, p)
			if err != nil {
				d.failures = append(d.failures, err)
			}
			return done || err != nil
		})
		return len(d.waiting) == 0, nil
	})
	if err == nil {
		return
	}
	var left []string
	for _, p := range d.waiting {
		left = append(left, p.id+": "+p.message)
	}
	why := "interrupted"
	if ctx.Err() == nil {
		why = fmt.Sprintf("timed out after %s (--timeout)", timeout)
	}
	d.failures = append(d.failures, fmt.Errorf("%s: %s; the drain continues until uncordon", why, strings.Join(left, ", ")))
}

// poll reads a provider, prints the message of its condition if it is a new one, and reports whether the provider is
// drained. Errors that may be temporary are printed once.
func (d *drain) poll(ctx context.Context, p *drainedProvider) (bool, error) {
	var pc v1alpha1.ProviderCluster
	err := d.s.get(ctx, client.ObjectKey{Name: p.id}, &pc)
	switch {
	case kerrors.IsNotFound(err), err == nil && pc.UID != p.uid:
		return false, fmt.Errorf("%s was deleted during the drain", p.id)
	case kerrors.IsForbidden(err), kerrors.IsUnauthorized(err):
		return false, err
	case err != nil:
		if !d.warned && ctx.Err() == nil {
			d.s.warn("retrying: " + word(err))
			d.warned = true
		}
		return false, nil
	}
	d.warned = false
	if !pc.Spec.Drain {
		return false, fmt.Errorf("%s: the drain was ended by another change", p.id)
	}
	c := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ProviderDrained)
	if c == nil || c.ObservedGeneration < pc.Generation {
		return false, nil
	}
	if c.Status == metav1.ConditionTrue {
		return true, d.s.printDone(&pc, "drained")
	}
	if c.Message == p.message {
		return false, nil
	}
	p.message = c.Message
	_, err = fmt.Fprintf(d.s.Out, "%s: %s\n", p.id, shown(c.Message))
	return false, err
}
