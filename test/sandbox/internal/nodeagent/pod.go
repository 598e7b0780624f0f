package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

const (
	restartBackoffMin = time.Second
	restartBackoffMax = 10 * time.Second
	// stableAfter is the run time after which a container's back-off is reset.
	stableAfter = 30 * time.Second
)

// podWorker runs one pod from its binding to its deletion.
type podWorker struct {
	agent     *Agent
	pod       *corev1.Pod
	component string
	// network is the network of the processes. It does not change after newPodWorker, whose error is networkErr.
	network    *podNetwork
	networkErr error

	// stop is closed when the pod must end, after grace is set.
	stop     chan struct{}
	stopOnce sync.Once
	grace    time.Duration
	// wake interrupts the wait before a restart.
	wake chan struct{}

	// stale is set while the API does not show the pod's newest status.
	stale atomic.Bool
	// reporting is held from reading the status until it is written: containers report concurrently, and an older
	// status could overwrite a newer one.
	reporting sync.Mutex

	mu         sync.Mutex
	containers []*container
	startTime  metav1.Time
}

// container is the state of one container, guarded by podWorker.mu.
type container struct {
	spec corev1.Container
	// env and binds belong to its last start; nil before the first one. Only runContainer uses them, without the lock.
	env, binds []string

	process *proc.Process
	// ports maps the container's ports to local ones.
	ports    map[int]int
	ready    bool
	restarts int32
	status   corev1.ContainerState
	last     corev1.ContainerState
}

func newPodWorker(a *Agent, pod *corev1.Pod) *podWorker {
	w := &podWorker{
		agent: a, pod: pod, component: ComponentOf(pod),
		stop: make(chan struct{}), wake: make(chan struct{}, 1), startTime: metav1.Now(),
	}
	w.network, w.networkErr = a.networkOf(pod)
	for _, c := range pod.Spec.Containers {
		w.containers = append(w.containers, &container{spec: c, status: waiting("ContainerCreating", "")})
	}
	return w
}

// terminate makes the worker end its processes within a grace period.
func (w *podWorker) terminate(graceSeconds int64) {
	w.stopOnce.Do(func() {
		w.grace = min(time.Duration(graceSeconds)*time.Second, 30*time.Second)
		close(w.stop)
	})
}

// hostPort returns the local port of a named port of a running container, 0 if there is none.
func (w *podWorker) hostPort(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.containers {
		if c.process == nil || !c.process.Running() {
			continue
		}
		if port, err := portNumber(c, intstr.FromString(name)); err == nil {
			return port
		}
	}
	return 0
}

func (w *podWorker) kick() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *podWorker) processes() []*proc.Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*proc.Process
	for _, c := range w.containers {
		if c.process != nil && c.process.Running() {
			out = append(out, c.process)
		}
	}
	return out
}

// run runs the pod until it or ctx ends.
func (w *podWorker) run(ctx context.Context) {
	defer os.RemoveAll(w.agent.podDir(w.pod))
	defer w.network.close()
	if w.networkErr != nil {
		w.setAll(waiting("CreateContainerError", w.networkErr.Error()))
	} else if len(w.pod.Spec.InitContainers) > 0 {
		w.setAll(waiting("Unsupported", "the sandbox's node agent runs no init containers"))
	} else {
		var all sync.WaitGroup
		for _, c := range w.containers {
			all.Add(1)
			go func() {
				defer all.Done()
				w.runContainer(ctx, c)
			}()
		}
		all.Wait()
	}
	w.report(ctx)
	select {
	case <-w.stop:
		w.finish(ctx)
	case <-ctx.Done():
	}
}

// runContainer runs and restarts one container until the pod ends.
func (w *podWorker) runContainer(ctx context.Context, c *container) {
	backoff := restartBackoffMin
	for {
		began := time.Now()
		if w.agent.isHeld(w) {
			w.set(ctx, c, waiting("Held", "stopped by sandbox kill; sandbox restart runs it again"))
		} else if p, err := w.startContainer(ctx, c); err != nil {
			w.set(ctx, c, waiting("CreateContainerError", err.Error()))
		} else if !w.superviseContainer(ctx, c, p) {
			return
		}
		if time.Since(began) > stableAfter {
			backoff = restartBackoffMin
		}
		select {
		case <-w.stop:
			return
		case <-ctx.Done():
			return
		case <-w.wake:
			backoff = restartBackoffMin
		case <-time.After(backoff):
			backoff = min(2*backoff, restartBackoffMax)
		}
	}
}

// superviseContainer waits for the process's end and reports whether the container must be restarted.
func (w *podWorker) superviseContainer(ctx context.Context, c *container, p *proc.Process) bool {
	probing, stopProbing := context.WithCancel(ctx)
	var probes sync.WaitGroup
	probes.Go(func() { w.probe(probing, c) })
	select {
	case <-p.Done:
	case <-w.stop:
		p.Stop(w.grace)
	case <-ctx.Done():
		p.Stop(2 * time.Second)
	}
	stopProbing()
	probes.Wait()
	ended := corev1.ContainerState{Terminated: terminated(p, c)}
	w.mu.Lock()
	c.last, c.ready = ended, false
	c.restarts++
	w.mu.Unlock()
	select {
	case <-w.stop:
		w.set(ctx, c, ended)
		return false
	case <-ctx.Done():
		return false
	default:
	}
	if !runsAgain(w.pod.Spec.RestartPolicy, ended.Terminated.ExitCode) {
		w.set(ctx, c, ended)
		return false
	}
	w.set(ctx, c, waiting("CrashLoopBackOff", fmt.Sprintf("%s; log: %s", ended.Terminated.Reason, p.Spec.Log)))
	return true
}

// runsAgain reports whether a container with that exit code is restarted.
func runsAgain(policy corev1.RestartPolicy, code int32) bool {
	return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && code != 0
}

func terminated(p *proc.Process, c *container) *corev1.ContainerStateTerminated {
	code := int32(0)
	if err := p.Err(); err != nil {
		code = 1
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Exited() {
			code = int32(exit.ExitCode())
		}
	}
	t := &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Completed", FinishedAt: metav1.Now()}
	if code != 0 {
		t.Reason, t.Message = "Error", fmt.Sprintf("%v\n%s", p.Err(), proc.Tail(p.Spec.Log, 3))
	}
	if c.status.Running != nil {
		t.StartedAt = c.status.Running.StartedAt
	}
	return t
}

// finish removes the pod from the API, as a kubelet does after its containers have ended.
func (w *podWorker) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_ = w.agent.cfg.Client.CoreV1().Pods(w.pod.Namespace).Delete(ctx, w.pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(w.pod.UID)),
	})
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func (w *podWorker) setAll(s corev1.ContainerState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.containers {
		c.status = s
	}
}

func (w *podWorker) set(ctx context.Context, c *container, s corev1.ContainerState) {
	w.mu.Lock()
	c.status = s
	w.mu.Unlock()
	w.report(ctx)
}
