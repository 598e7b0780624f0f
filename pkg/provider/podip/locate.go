package podip

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// locator is a reflector of pods that annotates each local pod with the place where it really runs, together with the
// address that Liqo writes: a reader of both never combines the address of one remote pod with the location of another.
type locator struct {
	namespaceReflector
	*namespace
	writes *ownWrites
	pods   corev1client.PodInterface
	events record.EventRecorder

	mu sync.Mutex
	// reported are the messages of the last events about pods without an address; guarded by mu.
	reported map[string]string
	// remoteIPs are the addresses that were looked up at a remote IPAM, by pod; guarded by mu.
	remoteIPs map[string]string
}

func (l *locator) Handle(ctx context.Context, name string) error {
	// The caches have no other error than NotFound.
	local, _ := l.local.Get(name)
	remote, _ := l.remote.Get(name)
	if l.writes.awaited(name, local) {
		return nil
	}
	if local == nil || remote == nil || !forge.IsReflected(remote) || placement.Terminal(remote) {
		// A pod that has ended is not reached any more. Its address may be assigned to another pod.
		l.report(nil, name, nil)
		l.track(name, "")
		return l.namespaceReflector.Handle(ctx, name)
	}
	l.track(name, remote.Status.PodIP)
	moved := change{
		local: local.ResourceVersion, remote: remote.ResourceVersion, annotations: annotationChanges(local, l.location(local, remote)),
	}
	err := l.namespaceReflector.Handle(context.WithValue(ctx, changeKey{}, &moved), name)
	if err == nil && moved.annotations != nil && !moved.handled &&
		(local.Status.PodIP == "" || local.Status.PodIP == l.show(remote).Status.PodIP) {
		return l.annotate(ctx, local, moved.annotations) // The status stays as it is.
	}
	if err == nil && remote.Status.PodIP != "" {
		_, unknown := l.addressOf(remote)
		l.report(local, name, unknown)
	}
	return err
}

// ForgetPodInfo drops the remembered state of a pod.
func (l *locator) ForgetPodInfo(name string) {
	l.writes.forget(name)
	l.namespaceReflector.ForgetPodInfo(name)
}

// track makes the remote IPAM client forget the previous address of a remote pod: another pod may get it.
func (l *locator) track(name, ip string) {
	if l.Remote == nil {
		return
	}
	l.mu.Lock()
	before := l.remoteIPs[name]
	l.remoteIPs[name] = ip
	if ip == "" {
		delete(l.remoteIPs, name)
	}
	l.mu.Unlock()
	if before != "" && before != ip {
		l.Remote.Forget(before)
	}
}

// forgetAll makes the remote IPAM client forget the addresses of all pods of the namespace.
func (l *locator) forgetAll() {
	l.mu.Lock()
	names := slices.Collect(maps.Keys(l.remoteIPs))
	l.mu.Unlock()
	for _, name := range names {
		l.track(name, "")
	}
}

// annotate changes annotations of the version of the pod that was read. It does nothing if the pod no longer exists.
func (l *locator) annotate(ctx context.Context, local *corev1.Pod, patch map[string]any) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": local.ResourceVersion, "annotations": patch},
	})
	if err != nil {
		return err
	}
	written, err := l.pods.Patch(ctx, local.Name, types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: forge.ReflectionFieldManager})
	switch {
	case kerrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("patching the annotations of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	l.writes.observe(local.ResourceVersion, written)
	return nil
}

// report records an event, once, with the reason why a pod has no address.
func (l *locator) report(local *corev1.Pod, name string, unknown error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if unknown == nil {
		delete(l.reported, name)
		return
	}
	if l.reported[name] == unknown.Error() || unknown.Error() == ErrPending.Error() {
		return // The address is about to become known.
	}
	l.reported[name] = unknown.Error()
	l.events.Event(local, corev1.EventTypeWarning, "AddressUnknown", untrusted.Text(unknown.Error()))
}
