package reflection

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	podregistry "k8s.io/kubernetes/pkg/registry/core/pod"
)

var podsResource = corev1.SchemeGroupVersion.WithResource("pods")

func requestContext() context.Context {
	return genericapirequest.WithNamespace(genericapirequest.NewContext(), "ns")
}

func internal(t testing.TB, pod *corev1.Pod) *core.Pod {
	t.Helper()
	out := &core.Pod{}
	if err := legacyscheme.Scheme.Convert(pod.DeepCopy(), out, nil); err != nil {
		t.Fatal(err)
	}
	return out
}

// admitted returns the pod as the API server stores it, or the error with which it is rejected.
func admitted(t testing.TB, pod *corev1.Pod) (*corev1.Pod, error) {
	t.Helper()
	pod = pod.DeepCopy()
	legacyscheme.Scheme.Default(pod)
	in := internal(t, pod)
	podregistry.Strategy.PrepareForCreate(requestContext(), in)
	if in.UID == "" {
		in.UID = types.UID("uid-" + pod.Name)
	}
	if in.CreationTimestamp.IsZero() {
		in.CreationTimestamp = metav1.Now()
	}
	if errs := podregistry.Strategy.Validate(requestContext(), in); len(errs) > 0 {
		return nil, kerrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, pod.Name, errs)
	}
	out := &corev1.Pod{}
	if err := legacyscheme.Scheme.Convert(in, out, nil); err != nil {
		t.Fatal(err)
	}
	return out, nil
}

// acceptStatus returns why the API server rejects the status of a pod, or nil.
func acceptStatus(t testing.TB, fresh, old *corev1.Pod) error {
	t.Helper()
	before, after := internal(t, old), internal(t, fresh)
	podregistry.StatusStrategy.PrepareForUpdate(requestContext(), after, before)
	// As rest.BeforeUpdate does.
	after.DeletionTimestamp, after.DeletionGracePeriodSeconds = before.DeletionTimestamp, before.DeletionGracePeriodSeconds
	if before.ResourceVersion == "" { // A fake clientset has none.
		before.ResourceVersion, after.ResourceVersion = "1", "1"
	}
	if errs := podregistry.StatusStrategy.ValidateUpdate(requestContext(), after, before); len(errs) > 0 {
		return kerrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, fresh.Name, errs)
	}
	return nil
}

// watchFromLists makes each watch of a fake clientset begin with the list before it, as a watch of an API server does.
// Otherwise an object that is deleted between an informer's list and its watch stays in the informer's cache.
func watchFromLists(clients *k8stesting.Fake, tracker k8stesting.ObjectTracker) {
	type listed struct {
		schema.GroupVersionResource
		namespace string
	}
	var (
		mu     sync.Mutex
		opened = map[listed][]watch.Interface{}
	)
	key := func(action k8stesting.Action) listed { return listed{action.GetResource(), action.GetNamespace()} }
	clients.PrependReactor("list", "*", func(action k8stesting.Action) (bool, runtime.Object, error) {
		w, err := tracker.Watch(action.GetResource(), action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		opened[key(action)] = append(opened[key(action)], w)
		return false, nil, nil
	})
	clients.PrependWatchReactor("*", func(action k8stesting.Action) (bool, watch.Interface, error) {
		mu.Lock()
		defer mu.Unlock()
		of := opened[key(action)]
		if len(of) == 0 {
			return false, nil, nil
		}
		opened[key(action)] = of[1:]
		return true, of[0], nil
	})
}

// validateStatuses makes a fake clientset validate statuses as an API server does.
func validateStatuses(t testing.TB, c *fake.Clientset) {
	c.PrependReactor("update", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		update := action.(k8stesting.UpdateAction)
		if update.GetSubresource() != "status" {
			return false, nil, nil
		}
		fresh := update.GetObject().(*corev1.Pod)
		stored, err := c.Tracker().Get(podsResource, fresh.Namespace, fresh.Name)
		if err != nil {
			return true, nil, err
		}
		old := stored.(*corev1.Pod)
		if err := acceptStatus(t, fresh, old); err != nil {
			return true, nil, err
		}
		kept := old.DeepCopy() // Unlike in a fake clientset, only the status changes.
		kept.Status = *fresh.Status.DeepCopy()
		return true, kept, c.Tracker().Update(podsResource, kept, fresh.Namespace)
	})
}
