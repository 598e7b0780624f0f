package offer

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
)

// round writes the offers of one pass. Nobody is given what another has not given back: a slice whose offer cannot be
// written holds up the others by what it has, and by nothing else.
type round struct {
	*reconciler
	// spare is what nobody has; below zero, more is granted than there is.
	spare  Amounts
	labels map[string]string
	now    time.Time

	failures []error
	// after is when to look again at the latest, 0 for no need to.
	after time.Duration
}

// step is the offer to one slice.
type step struct {
	slice      *authv1beta1.ResourceSlice
	asked, has Amounts
	offer      Offer
	// undone says that the offer was not written.
	undone bool
}

// shrink writes the offer, unless it has more of something; then it takes back what it has less of.
func (w *round) shrink(ctx context.Context, s *step) {
	offer, less, more := s.offer, s.has.minus(s.offer.Granted), s.offer.Granted.minus(s.has)
	if len(more) > 0 {
		if len(less) == 0 {
			return
		}
		offer.Granted = offer.Granted.atMost(s.has)
	}
	if w.write(ctx, s, offer) {
		w.spare.add(less)
	}
}

// grow writes the offer if it has more of something, as far as that is there.
func (w *round) grow(ctx context.Context, s *step) {
	more := s.offer.Granted.minus(s.has)
	if len(more) == 0 || s.undone {
		return
	}
	offer, short := s.offer, !w.spare.covers(more)
	if short {
		more = more.atMost(w.spare).minus(nil) // What is above zero.
		offer.Granted = s.has.plus(more)
		if len(more) == 0 || !s.suffices(offer.Granted) {
			s.undone = true
			return
		}
	}
	if w.write(ctx, s, offer) {
		w.spare.take(more)
	}
	s.undone = s.undone || short
}

// suffices says whether a slice can begin with so much: with all that it asks for, and something of what it gets anyway.
func (s *step) suffices(granted Amounts) bool {
	if s.has != nil {
		return true
	}
	for name := range s.offer.Granted {
		if asked, named := s.asked[name]; granted[name] < asked || !named && granted[name] < min(1, s.offer.Granted[name]) {
			return false
		}
	}
	return true
}

// write says whether the offer is written; if not, it is noted when to try again.
func (w *round) write(ctx context.Context, s *step, offer Offer) bool {
	err := w.give(ctx, s, offer)
	s.undone = err != nil
	switch {
	case kerrors.IsConflict(err):
		w.again(afterConflict) // It is Liqo's certificate, or the consumer asks for something else.
	case err != nil:
		w.failures = append(w.failures, err)
	}
	return !s.undone
}

func (w *round) again(after time.Duration) {
	if after > 0 && (w.after == 0 || after < w.after) {
		w.after = after
	}
}

// give writes an offer, unless the slice has it already or is gone.
func (w *round) give(ctx context.Context, s *step, offer Offer) error {
	updated := s.slice.DeepCopy()
	changed := write(updated, offer, w.labels, classes{w.cfg.IngressClasses, w.cfg.LoadBalancerClasses}, w.now)
	if equality.Semantic.DeepEqual(s.slice.Status, updated.Status) {
		return nil
	}
	err := w.client.Status().Update(ctx, updated)
	switch {
	case kerrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("status of ResourceSlice %s: %w", nameOf(s.slice), err)
	}
	s.slice = updated
	switch {
	case !changed:
	case offer.Granted == nil:
		w.metrics.denials.WithLabelValues(consumerOf(updated)).Inc()
		w.events.Event(updated, corev1.EventTypeWarning, reasonDenied, "Denied: "+offer.Reason)
	default:
		message := "Granted " + offer.Granted.String()
		if offer.Reason != "" {
			message += " (" + offer.Reason + ")"
		}
		w.events.Event(updated, corev1.EventTypeNormal, reasonGranted, message)
	}
	return nil
}
