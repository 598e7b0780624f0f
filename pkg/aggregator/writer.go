package aggregator

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/admission"
	"github.com/capacitorset/liqo-broker-vk/pkg/aggregator/share"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// writer writes the offers of one reconciliation. No slice is granted resources that another one has not released. If
// an offer cannot be written, the others wait only for the resources of that slice.
type writer struct {
	*reconciler
	// free has the amounts that no slice has.
	free   share.Budget
	labels map[string]string
	now    time.Time

	failures []error
	// after is the time until the requeue; 0 is none.
	after time.Duration
}

// pendingOffer is the offer to one slice.
type pendingOffer struct {
	*share.Slice
	slice *authv1beta1.ResourceSlice
	offer share.Offer
	// has is the grant that is written.
	has resources.Amounts
	// unwritten: the offer was not written, or only in part.
	unwritten bool
}

// shrink writes the offer if no resource grows. Otherwise it writes only the resources that shrink.
func (w *writer) shrink(ctx context.Context, s *pendingOffer) {
	offer, less, more := s.offer, s.has.Excess(s.offer.Granted), s.offer.Granted.Excess(s.has)
	if len(more) > 0 {
		if len(less) == 0 {
			return
		}
		offer.Granted = offer.Granted.Min(s.has)
	}
	if w.write(ctx, s, offer) {
		w.free.ReleaseUsed(s.Slice, s.has)
		w.free.Release(s.Consumer, less)
		w.free.TakeUsed(s.Slice, offer.Granted)
		s.has = offer.Granted
	}
}

// grow writes the offer if a resource grows, up to the free resources.
func (w *writer) grow(ctx context.Context, s *pendingOffer) {
	more := s.offer.Granted.Excess(s.has)
	if len(more) == 0 || s.unwritten {
		return
	}
	if w.cfg.Guard.Missing() != "" {
		s.unwritten = true
		w.requeueAfter(admission.Recheck)
		return
	}
	w.free.ReleaseUsed(s.Slice, s.has)
	defer func() { w.free.TakeUsed(s.Slice, s.has) }()
	free := w.free.AllLeft(s.Consumer)
	offer, short := s.offer, !free.Covers(more)
	if short {
		more = more.Min(free).Excess(nil) // Only amounts above zero.
		offer.Granted = resources.Amounts{}
		offer.Granted.Add(s.has)
		offer.Granted.Add(more)
		if len(more) == 0 || !s.suffices(offer.Granted) {
			s.unwritten = true
			return
		}
	}
	if w.write(ctx, s, offer) {
		w.free.Take(s.Consumer, more)
		s.has = offer.Granted
	}
	s.unwritten = s.unwritten || short
}

// suffices reports whether a first grant is enough: all requested amounts, and some of each resource that the slice
// does not name.
func (s *pendingOffer) suffices(granted resources.Amounts) bool {
	if s.has != nil {
		return true
	}
	for name := range s.offer.Granted {
		if requested, named := s.Requested[name]; granted[name] < requested || !named && granted[name] < min(1, s.offer.Granted[name]) {
			return false
		}
	}
	return true
}

// write writes an offer and reports whether it succeeded. After a conflict everything is requeued.
func (w *writer) write(ctx context.Context, s *pendingOffer, offer share.Offer) bool {
	err := w.update(ctx, s, offer)
	s.unwritten = err != nil
	switch {
	case kerrors.IsConflict(err):
		w.requeueAfter(afterConflict) // Liqo wrote a certificate, or the consumer changed its request.
	case err != nil:
		w.failures = append(w.failures, err)
	}
	return !s.unwritten
}

func (w *writer) requeueAfter(after time.Duration) {
	if after > 0 && (w.after == 0 || after < w.after) {
		w.after = after
	}
}

// update writes an offer, unless the slice has it already or does not exist any more.
func (w *writer) update(ctx context.Context, s *pendingOffer, offer share.Offer) error {
	updated := s.slice.DeepCopy()
	changed := write(updated, offer, w.labels, classes{w.cfg.IngressClasses, w.cfg.LoadBalancerClasses, w.cfg.StorageClasses}, w.now)
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
		w.metrics.denials.WithLabelValues(placement.ConsumerOfSlice(updated)).Inc()
		w.events.Event(updated, corev1.EventTypeWarning, reasonDenied, "Denied: "+offer.Reason)
	default:
		message := "Granted " + share.Text(offer.Granted)
		if offer.Reason != "" {
			message += " (" + offer.Reason + ")"
		}
		w.events.Event(updated, corev1.EventTypeNormal, reasonGranted, message)
	}
	return nil
}
