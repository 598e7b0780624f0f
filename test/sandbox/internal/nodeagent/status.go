package nodeagent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// report writes the pod's status. If that fails, for example while the API server is frozen, the next heartbeat
// retries.
func (w *podWorker) report(ctx context.Context) {
	w.reporting.Lock()
	defer w.reporting.Unlock()
	patch, err := json.Marshal(map[string]any{"status": w.status()})
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = w.agent.cfg.Client.CoreV1().Pods(w.pod.Namespace).Patch(ctx, w.pod.Name,
		types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	w.stale.Store(err != nil && !apierrors.IsNotFound(err))
}

func (w *podWorker) status() corev1.PodStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := corev1.PodStatus{
		Phase: corev1.PodPending, HostIP: w.agent.hostAddress(), PodIP: w.network.address(),
		PodIPs: []corev1.PodIP{{IP: w.network.address()}}, StartTime: &w.startTime,
	}
	ready, ended, failed := true, 0, 0
	for _, c := range w.containers {
		started := c.status.Running != nil
		ready = ready && c.ready
		if started || c.restarts > 0 {
			s.Phase = corev1.PodRunning
		}
		if t := c.status.Terminated; t != nil {
			ended++
			if t.ExitCode != 0 {
				failed++
			}
		}
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: c.spec.Name, Image: c.spec.Image, ImageID: c.spec.Image, Ready: c.ready, Started: &started,
			RestartCount: c.restarts, State: c.status, LastTerminationState: c.last,
		})
	}
	switch {
	case ended == len(w.containers) && failed > 0:
		s.Phase = corev1.PodFailed
	case ended == len(w.containers):
		s.Phase = corev1.PodSucceeded
	}
	for _, t := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status := corev1.ConditionTrue
		if t != corev1.PodInitialized && !ready {
			status = corev1.ConditionFalse
		}
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: t, Status: status, LastTransitionTime: metav1.Now()})
	}
	return s
}

// probe sets the container's readiness: to ready at once without a readiness probe, otherwise to the probe's result.
func (w *podWorker) probe(ctx context.Context, c *container) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		ready := c.spec.ReadinessProbe == nil || w.probeOnce(ctx, c) == nil
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		changed := c.ready != ready
		c.ready = ready
		w.mu.Unlock()
		if changed {
			w.report(ctx)
		}
		if c.spec.ReadinessProbe == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// probeOnce runs an HTTP probe as specified. For any other kind it checks only that a process listens on the port.
func (w *podWorker) probeOnce(ctx context.Context, c *container) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	p := c.spec.ReadinessProbe
	switch {
	case p.HTTPGet != nil:
		port, err := w.port(c, p.HTTPGet.Port)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, p.HTTPGet.Path), nil)
		if err != nil {
			return err
		}
		resp, err := w.network.httpClient().Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode >= http.StatusBadRequest {
			return fmt.Errorf("%s", resp.Status)
		}
		return nil
	case p.GRPC != nil:
		return w.network.reach(ctx, int(p.GRPC.Port))
	case p.TCPSocket != nil:
		port, err := w.port(c, p.TCPSocket.Port)
		if err != nil {
			return err
		}
		return w.network.reach(ctx, port)
	}
	return nil
}

func (w *podWorker) port(c *container, port intstr.IntOrString) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return portNumber(c, port)
}

// portNumber returns the local port of a container's port.
func portNumber(c *container, port intstr.IntOrString) (int, error) {
	number := port.IntValue()
	if port.Type == intstr.String {
		i := slices.IndexFunc(c.spec.Ports, func(p corev1.ContainerPort) bool { return p.Name == port.StrVal })
		if i < 0 {
			return 0, fmt.Errorf("container %s has no port %q", c.spec.Name, port.StrVal)
		}
		number = int(c.spec.Ports[i].ContainerPort)
	}
	if own, ok := c.ports[number]; ok {
		return own, nil
	}
	return number, nil
}
