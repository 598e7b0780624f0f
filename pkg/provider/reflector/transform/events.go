package transform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
)

// countInterval is the minimum time between two writes of one event's count: a remote cluster may change its events all
// the time.
const countInterval = 10 * time.Second

// errCounted requeues an event whose count was written less than countInterval ago.
var errCounted = errors.New("the count of the event was written a moment ago")

// Events returns a reflector of events with trimmed caches. Remote texts are bounded and safe to show. It also writes
// how often and when an event has happened last; Liqo's reflector writes an event only once.
func Events(next generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		local, remote := opts.LocalFactory.Core().V1().Events(), opts.RemoteFactory.Core().V1().Events()
		Must(remote.Informer().SetTransform(boundEvent))
		Must(local.Informer().SetTransform(trimLocalEvent))
		TrimToPlace(opts.LocalFactory.Core().V1().Pods().Informer())
		return &events{
			NamespacedReflector: next(opts),
			local:               local.Lister().Events(opts.LocalNamespace),
			remote:              remote.Lister().Events(opts.RemoteNamespace),
			client:              opts.LocalClient.CoreV1().Events(opts.LocalNamespace),
			clock:               clock.RealClock{},
			counted:             map[string]time.Time{},
		}
	}
}

type events struct {
	manager.NamespacedReflector
	local, remote corev1listers.EventNamespaceLister
	client        corev1client.EventInterface
	clock         clock.PassiveClock

	mu sync.Mutex
	// counted is the time when the count of an event was last written, by its name; guarded by mu.
	counted map[string]time.Time
}

func (e *events) Handle(ctx context.Context, name string) error {
	// The caches have no other error than NotFound.
	local, _ := e.local.Get(name)
	remote, _ := e.remote.Get(name)
	if local == nil || remote == nil {
		e.forget(name)
	} else if forge.IsReflected(local) && !counts(local, remote) {
		if err := e.count(ctx, local, remote); err != nil {
			return err
		}
	}
	return e.NamespacedReflector.Handle(ctx, name)
}

// counts reports whether a local event has the count of its remote event.
func counts(local, remote *corev1.Event) bool {
	return local.Count == remote.Count && local.LastTimestamp.Equal(&remote.LastTimestamp) &&
		apiequality.Semantic.DeepEqual(local.Series, remote.Series)
}

func (e *events) forget(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.counted, name)
}

// mayCount reports whether the count of an event may be written now, and if so, records the write.
func (e *events) mayCount(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	if last, is := e.counted[name]; is && now.Sub(last) < countInterval {
		return false
	}
	e.counted[name] = now
	return true
}

func (e *events) count(ctx context.Context, local, remote *corev1.Event) error {
	if !e.mayCount(local.Name) {
		return errCounted
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": local.UID},
		"count":    remote.Count, "lastTimestamp": remote.LastTimestamp, "series": remote.Series, "message": remote.Message,
	})
	if err != nil {
		return err
	}
	_, err = e.client.Patch(ctx, local.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: forge.ReflectionFieldManager})
	if err != nil && !kerrors.IsNotFound(err) && !kerrors.IsConflict(err) && !kerrors.IsInvalid(err) {
		return fmt.Errorf("patching the count of event %s/%s: %w", local.Namespace, local.Name, err)
	}
	return nil
}
