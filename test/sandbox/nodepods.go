package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/nodeagent"
)

// nodePods are the pods of a cluster's real node, as last seen: they are known while the API server does not answer.
type nodePods struct {
	store cache.Store

	mu sync.Mutex
	// exposed has the addresses on this machine that lead to addresses of pods; guarded by mu.
	exposed map[string]string
}

// watchPods follows the pods of the real node until the sandbox ends.
func (c *Cluster) watchPods(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(c.Kube, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", c.MachineNode()).String()
	}))
	informer := factory.Core().V1().Pods().Informer()
	c.pods = &nodePods{store: informer.GetStore(), exposed: map[string]string{}}
	c.sandbox.background.Go(func() error {
		informer.RunWithContext(c.sandbox.runCtx)
		return nil
	})
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return ctx.Err()
	}
	return nil
}

// list returns the pods that have not ended, sorted by name; nothing without a real node.
func (n *nodePods) list() (pods []*corev1.Pod) {
	if n == nil {
		return nil
	}
	for _, o := range n.store.List() {
		if pod := o.(*corev1.Pod); pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// components returns the names of the pods of each component.
func (c *Cluster) components() map[string][]string {
	of := c.agent.Components()
	for _, pod := range c.pods.list() {
		component := nodeagent.ComponentOf(pod)
		of[component] = append(of[component], pod.Name)
	}
	return of
}

// containerProcess is a process of a container of the real node.
type containerProcess struct {
	component, pod string
	pid            int
}

// containerProcesses returns the processes of a component, of a pod, or of all pods for the empty name. It is an error if a
// container that runs, as its pod says, has none: it may just be restarting.
func (c *Cluster) containerProcesses(name string) (out []containerProcess, err error) {
	var errs []error
	for _, pod := range c.pods.list() {
		component := nodeagent.ComponentOf(pod)
		if name != "" && name != component && name != pod.Name {
			continue
		}
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			_, id, _ := strings.Cut(status.ContainerID, "://")
			pids := c.machine.PIDs(string(pod.UID), id)
			if len(pids) == 0 && status.State.Running != nil {
				errs = append(errs, fmt.Errorf("%s/%s: container %s has no process now", c.Name, pod.Name, status.Name))
			}
			for _, pid := range pids {
				out = append(out, containerProcess{component, pod.Name, pid})
			}
		}
	}
	return out, errors.Join(errs...)
}

// signalContainers sends a signal to the processes of containers. One that has ended meanwhile is no error.
func (c *Cluster) signalContainers(name string, sig syscall.Signal) error {
	processes, err := c.containerProcesses(name)
	errs := []error{err}
	for _, p := range processes {
		if err := syscall.Kill(p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("%s/%s: %w", c.Name, p.pod, err))
		}
	}
	return errors.Join(errs...)
}

// expose returns an address of this machine at which a named port of a pod of the real node is reached; "" if the pod does
// not run, or has no such port.
func (c *Cluster) expose(name, port string) (string, error) {
	for _, pod := range c.pods.list() {
		if pod.Name != name || pod.Status.PodIP == "" {
			continue
		}
		for i := range pod.Spec.Containers {
			for _, p := range pod.Spec.Containers[i].Ports {
				if p.Name == port {
					return c.exposePort(net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(p.ContainerPort)))
				}
			}
		}
	}
	return "", nil
}

func (c *Cluster) exposePort(address string) (string, error) {
	n := c.pods
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, is := n.exposed[address]; is {
		return at, nil
	}
	ctx, cancel := context.WithTimeout(c.sandbox.runCtx, time.Second)
	defer cancel()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	c.machineNetwork.Expose(listener, address)
	n.exposed[address] = listener.Addr().String()
	return n.exposed[address], nil
}
