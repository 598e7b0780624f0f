package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"golang.org/x/sync/errgroup"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	// creators is how many pods are created at once.
	creators = 16
	// allOfThem is the total CPU request of pods that are created at once (thousandths of a CPU): three quarters of a
	// consumer's slice.
	allOfThem = 45_000
)

// podsOf lists and watches the pods of a namespace.
type podsOf struct {
	kube      kubernetes.Interface
	namespace string
}

func (p podsOf) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return p.kube.CoreV1().Pods(p.namespace).Watch(ctx, o)
}

// follow calls see with every pod of the namespace, at first and whenever it changes, with gone set when it is deleted,
// until see reports that it is done. It watches instead of listing: lists of thousands of pods would load the API
// server under test.
func follow(ctx context.Context, c *sandbox.Cluster, namespace string, see func(pod *corev1.Pod, gone bool) (enough bool)) error {
	pods := podsOf{c.Kube, namespace}
	list, err := c.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if see(&list.Items[i], false) {
			return nil
		}
	}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, pods)
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-w.ResultChan():
			if !ok {
				return fmt.Errorf("the watch of the pods in %s of %s ended", namespace, c.Name)
			}
			pod, isPod := e.Object.(*corev1.Pod)
			if !isPod {
				return fmt.Errorf("watch: %w", apierrors.FromObject(e.Object))
			}
			if see(pod, e.Type == watch.Deleted) {
				return nil
			}
		}
	}
}

// set is a set of pod names that satisfy a condition.
type set map[string]bool

func (s set) put(name string, in bool) {
	if in {
		s[name] = true
	} else {
		delete(s, name)
	}
}

// gone waits until a namespace has no pods.
func gone(ctx context.Context, c *sandbox.Cluster, namespace string) error {
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		list, err := c.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil && len(list.Items) == 0, ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("pods are left in %s of %s: %w", namespace, c.Name, err)
	}
	return nil
}

// timed calls create and returns, sorted, how many seconds after that each of n pods of the namespace was first seen
// Ready.
func timed(ctx context.Context, c *sandbox.Cluster, namespace string, n int, create func(context.Context) error) ([]float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := set{}
	var took []float64
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		err := follow(ctx, c, namespace, func(pod *corev1.Pod, gone bool) bool {
			if gone || ready[pod.Name] || !isReady(pod) {
				return false
			}
			ready.put(pod.Name, true)
			took = append(took, time.Since(began).Seconds())
			return len(took) == n
		})
		if err != nil {
			return fmt.Errorf("%d of %d pods in %s of %s are Ready: %w", len(took), n, namespace, c.Name, err)
		}
		return nil
	})
	group.Go(func() error { return create(ctx) })
	return took, group.Wait()
}

func isReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// createAll creates n pods as fast as the API server accepts them. Together they request allOfThem, so that
// kube-scheduler and the broker spread them over the providers by free capacity: pods with tiny requests could all be
// assigned to one provider.
func createAll(ctx context.Context, c *sandbox.Cluster, namespace string, n int) error {
	share := resource.NewMilliQuantity(max(1, allOfThem/int64(n)), resource.DecimalSI)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := range n {
		group.Go(func() error {
			pod := newPod(namespace, fmt.Sprintf("pod-%05d", i))
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *share
			_, err := c.Kube.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}

// clear deletes the pods of a namespace, and waits until they and their events are gone from all clusters. Every
// virtual kubelet caches the events of its namespaces, so otherwise each turn would have more of them than the previous
// one.
func (b *bench) clear(ctx context.Context, namespaces map[*sandbox.Cluster]string, first *sandbox.Cluster) error {
	// The API server aborts a request after a minute, and has deleted some thousand pods by then.
	err := retry.OnError(wait.Backoff{Steps: 20, Duration: time.Second}, func(error) bool { return ctx.Err() == nil }, func() error {
		return first.Kube.CoreV1().Pods(namespaces[first]).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	if err != nil {
		return err
	}
	for c, namespace := range namespaces {
		if err := gone(ctx, c, namespace); err != nil {
			return err
		}
	}
	for c, namespace := range namespaces {
		if err := c.Client.DeleteAllOf(ctx, &corev1.Event{}, client.InNamespace(namespace)); err != nil {
			return err
		}
	}
	return nil
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To(int64(1)),
		Containers: []corev1.Container{{
			Name: "main", Image: "registry.k8s.io/pause:3.10",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("1Mi"),
			}},
		}},
	}
}

func newPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: podSpec()}
}
