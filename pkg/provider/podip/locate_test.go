package podip

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// liqoStatus handles the status of a pod as Liqo's pod reflector does (HandleStatus in reflection/workload).
type liqoStatus struct {
	manager.NamespacedReflector
	locator *locator
	pods    corev1client.PodInterface
	// before is called before the pods are read.
	before func() error
	// early makes it return before it handles the status.
	early bool
}

func (liqoStatus) ForgetPodInfo(string) {}

func (l liqoStatus) Handle(ctx context.Context, name string) error {
	if l.before != nil {
		if err := l.before(); err != nil {
			return err
		}
	}
	if l.early {
		return nil
	}
	local, err := l.locator.local.Get(name)
	if err != nil {
		return err
	}
	remote, err := l.locator.remote.Get(name)
	if err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: *local.ObjectMeta.DeepCopy(), Status: *l.locator.show(remote).Status.DeepCopy()}
	if reflect.DeepEqual(local.Status, pod.Status) {
		return nil
	}
	_, err = l.pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

func indexOf(t *testing.T, pods ...*corev1.Pod) cache.Indexer {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, pod := range pods {
		require.NoError(t, indexer.Add(pod))
	}
	return indexer
}

func newLocator(t *testing.T, cfg Config, client *fake.Clientset, locals, remotes cache.Indexer) *locator {
	t.Helper()
	return &locator{
		namespace: &namespace{
			Addresses: &Addresses{resolver: resolver{Sources: Sources{Networks: remapped(t)}, Config: cfg}},
			local:     corev1listers.NewPodLister(locals).Pods("ns"),
			remote:    corev1listers.NewPodLister(remotes).Pods("ns"),
		},
		pods: client.CoreV1().Pods("ns"), writes: &ownWrites{}, events: record.NewFakeRecorder(10), reported: map[string]string{},
	}
}

// writes returns the verbs and subresources of the writes.
func writes(client *fake.Clientset) (all []string) {
	for _, action := range client.Actions() {
		if verb := action.GetVerb(); verb != "get" && verb != "list" && verb != "watch" {
			all = append(all, verb+" "+action.GetSubresource())
		}
	}
	return all
}

func TestTheLocationOfAPodComesWithItsAddress(t *testing.T) {
	located := map[string]string{
		"app": "web", v1alpha1.RootIPAnnotation: "10.244.1.2", v1alpha1.RootClusterAnnotation: "provider",
	}
	elsewhere := map[string]string{
		"app": "web", v1alpha1.RootIPAnnotation: "10.9.1.2", v1alpha1.RootClusterAnnotation: "other",
		v1alpha1.InnerIPAnnotation: "10.9.1.2",
	}
	for name, tc := range map[string]struct {
		annotations map[string]string
		shows       string // The local pod.
		address     string // The remote one.
		changed     string // The pod that changes meanwhile: local or remote.
		earlier     error  // Liqo fails before it handles the status.
		early       bool
		fails       error // The write of the status.

		wrote     []string
		annotated map[string]string
		shown     string
		err       string
	}{
		"an address comes": {
			annotations: map[string]string{"app": "web"}, address: "10.244.1.2",
			wrote: []string{"update status"}, annotated: located, shown: "10.30.1.2",
		},
		"a pod without annotations": {
			address: "10.244.1.2", wrote: []string{"update status"}, shown: "10.30.1.2",
			annotated: map[string]string{v1alpha1.RootIPAnnotation: "10.244.1.2", v1alpha1.RootClusterAnnotation: "provider"},
		},
		"it has moved": {
			annotations: elsewhere, shows: "10.9.1.2", address: "10.244.1.2",
			wrote: []string{"update status"}, annotated: located, shown: "10.30.1.2",
		},
		"it has moved where its address is not known": {
			annotations: elsewhere, shows: "10.9.1.2", address: "10.77.1.2", wrote: []string{"update status"}, shown: "",
			annotated: map[string]string{"app": "web", v1alpha1.RootIPAnnotation: "10.77.1.2", v1alpha1.RootClusterAnnotation: "provider"},
		},
		"its status is shown already": {
			annotations: map[string]string{"app": "web"}, shows: "10.30.1.2", address: "10.244.1.2",
			wrote: []string{"patch "}, annotated: located, shown: "10.30.1.2",
		},
		"all is shown already": {
			annotations: located, shows: "10.30.1.2", address: "10.244.1.2", annotated: located, shown: "10.30.1.2",
		},
		"it is another pod meanwhile": {
			annotations: map[string]string{"app": "web"}, address: "10.244.1.2", changed: "local",
			annotated: map[string]string{"app": "web"}, err: "has changed since its location was computed",
		},
		"it has moved meanwhile": {
			annotations: located, shows: "10.30.1.2", address: "10.244.1.2", changed: "remote", annotated: located,
			err: "has changed since its location was computed",
		},
		"Liqo fails before the status, and its address is not known": {
			annotations: elsewhere, shows: "10.9.1.2", address: "10.77.1.2", earlier: errors.New("no"), annotated: elsewhere, err: "no",
		},
		"Liqo fails before the status": {
			annotations: elsewhere, shows: "10.9.1.2", address: "10.244.1.2", earlier: errors.New("no"), annotated: elsewhere, err: "no",
		},
		"Liqo does not come to the status": {
			annotations: elsewhere, shows: "10.9.1.2", address: "10.244.1.2", early: true, annotated: elsewhere, shown: "10.9.1.2",
		},
		"no address is shown, as with --disable-ip-reflection": {
			annotations: map[string]string{"app": "web"}, address: "10.244.1.2", early: true,
			wrote: []string{"patch "}, annotated: located, shown: "",
		},
		"the status cannot be written": {
			annotations: map[string]string{"app": "web"}, address: "10.244.1.2", fails: errors.New("no"),
			wrote: []string{"update status"}, annotated: map[string]string{"app": "web"}, err: "no",
		},
	} {
		t.Run(name, func(t *testing.T) {
			local, remote := podWith(tc.shows), podWith(tc.address)
			local.Annotations, local.ResourceVersion, local.UID = tc.annotations, "7", "uid"
			if tc.shows != "" {
				local.Status.PodIPs = []corev1.PodIP{{IP: tc.shows}}
			}
			remote.Labels = forge.ReflectionLabels()
			client := fake.NewClientset(local.DeepCopy())
			if tc.fails != nil {
				client.PrependReactor("update", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, tc.fails
				})
			}
			locals, remotes := indexOf(t, local), indexOf(t, remote)
			l := newLocator(t, Config{Direct: true, Origin: "provider"}, client, locals, remotes)
			liqo := liqoStatus{locator: l, pods: localClient{client, l.remote, l.writes}.CoreV1().Pods("ns"), early: tc.early}
			liqo.before = func() error {
				other := map[string]*corev1.Pod{"local": local.DeepCopy(), "remote": remote.DeepCopy()}[tc.changed]
				if other == nil {
					return tc.earlier
				}
				other.ResourceVersion = "8"
				if tc.changed == "local" {
					return locals.Update(other)
				}
				other.Status.PodIP = "10.244.9.9"
				return remotes.Update(other)
			}
			l.namespaceReflector = liqo

			err := l.Handle(t.Context(), "pod")
			if tc.err == "" {
				require.NoError(t, err)
			} else {
				require.Regexp(t, tc.err, err.Error())
			}
			require.Equal(t, tc.changed != "", kerrors.IsConflict(err))
			require.Equal(t, tc.wrote, writes(client))
			there, err := client.CoreV1().Pods("ns").Get(t.Context(), "pod", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, tc.annotated, there.Annotations)
			if tc.err == "" {
				require.Equal(t, tc.shown, there.Status.PodIP)
			}
			require.Equal(t, tc.annotations, local.Annotations, "the one in the cache is as it was")
		})
	}
}

func TestAPodIsHandledWhenTheCacheShowsTheLastWrite(t *testing.T) {
	local, remote := podWith(""), podWith("10.244.1.2")
	local.ResourceVersion, remote.Labels = "7", forge.ReflectionLabels()
	client := fake.NewClientset(local.DeepCopy())
	version := "8"
	client.PrependReactor("update", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		written := action.(clienttesting.UpdateAction).GetObject().(*corev1.Pod).DeepCopy()
		written.ResourceVersion = version
		return true, written, nil
	})
	locals, remotes := indexOf(t, local), indexOf(t, remote)
	l := newLocator(t, Config{}, client, locals, remotes)
	l.namespaceReflector = liqoStatus{locator: l, pods: localClient{client, l.remote, l.writes}.CoreV1().Pods("ns")}
	handle := func(want int) {
		t.Helper()
		require.NoError(t, l.Handle(t.Context(), "pod"))
		require.Len(t, writes(client), want)
	}
	handle(1)
	handle(1) // It would get a conflict.

	// The cache shows the write, and the remote pod has changed meanwhile.
	local = local.DeepCopy()
	local.ResourceVersion, local.Status.PodIP = "8", "10.30.1.2"
	require.NoError(t, locals.Update(local))
	moved := remote.DeepCopy()
	moved.Status.PodIP = "10.244.1.3"
	require.NoError(t, remotes.Update(moved))
	handle(2) // The resourceVersion is the previous one: nothing has changed, and no write is awaited.
	handle(3)

	// A new pod of the same name is another pod.
	version = "9"
	handle(4)
	require.NoError(t, locals.Delete(local))
	l.ForgetPodInfo("pod")
	require.Empty(t, l.writes.before)
	require.NoError(t, locals.Add(local))
	handle(5)
}
