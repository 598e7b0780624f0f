package containers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	// patience is how long a pod may take to become as it should.
	patience = time.Minute
	// callTimeout bounds a command of kubectl that ends by itself.
	callTimeout = 20 * time.Second
	namespace   = "shop"
)

// federation is a consumer whose namespace shop is offloaded, the broker, and two providers.
type federation struct {
	*sandbox.Sandbox
	consumer, broker *sandbox.Cluster
	providers        []*sandbox.Cluster
}

func start(t *testing.T) *federation {
	t.Helper()
	if err := sandbox.ContainersPossible(); err != nil {
		t.Skip(err)
	}
	others := cgroupsOf(t)
	s, err := sandbox.Up(t.Context(), sandbox.Options{
		Name:      "containers-in-a-long-directory", // Too long for the sockets of a kubelet in it.
		Consumers: 1, Providers: 2, BrokerNode: "pool", Containers: true, Progress: t.Logf,
		BrokerArgs: []string{
			"--probe-interval=1s", "--probe-timeout=1s", "--status-interval=1s", "--failover-after=10s", "--pending-timeout=10s",
			"--offer-storage-class=liqo;default",
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs are in %s", s.Dir())
			require.NoError(t, s.Stop())
			return
		}
		require.NoError(t, s.Down())
		for _, dir := range cgroupsOf(t) {
			require.Contains(t, others, dir, "a node has left it")
		}
	})
	f := &federation{
		Sandbox: s, consumer: s.Cluster(sandbox.Consumer(1)), broker: s.Cluster(sandbox.Broker),
		providers: []*sandbox.Cluster{s.Cluster(sandbox.Provider(1)), s.Cluster(sandbox.Provider(2))},
	}
	require.NoError(t, f.consumer.Offload(t.Context(), namespace))
	return f
}

// cgroupsOf returns the cgroups of the nodes of all sandboxes of this machine.
func cgroupsOf(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("/sys/fs/cgroup/*/liqo-broker-vk-*")
	require.NoError(t, err)
	return dirs
}

// kubectl runs kubectl as an administrator of a cluster, and returns its output.
func (f *federation) kubectl(t *testing.T, c *sandbox.Cluster, args ...string) string {
	t.Helper()
	out, err := f.try(t.Context(), c, "", args...)
	require.NoError(t, err)
	return out
}

// try is kubectl with an input, which may fail.
func (f *federation) try(ctx context.Context, c *sandbox.Cluster, input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(f.Tools(), "kubectl"), append([]string{"--kubeconfig=" + c.Kubeconfig()}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, errs.Bytes())
	}
	return out.String(), nil
}

// shell is a pod whose container runs a script of the shell.
func shell(name, script string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To(int64(5)),
			Containers:                    []corev1.Container{container("main", script)},
		},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func container(name, script string) corev1.Container {
	return corev1.Container{
		Name: name, Image: sandbox.ImageBusybox, Command: []string{"sh", "-c", script},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
		},
	}
}

// serve is a script that runs until it is asked to end.
const serve = `trap 'echo asked to end; exit 0' TERM; echo started; while true; do sleep 0.2; done`

func (f *federation) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		require.NoError(t, f.consumer.Client.Create(t.Context(), o))
	}
}

// at returns the cluster that runs a pod of the consumer, and the pod there; nil if there is none.
func (f *federation) at(ctx context.Context, name string) (*sandbox.Cluster, *corev1.Pod) {
	for _, c := range f.providers {
		var pod corev1.Pod
		key := client.ObjectKey{Namespace: f.remoteNamespace(), Name: name}
		if err := c.Client.Get(ctx, key, &pod); err == nil {
			return c, &pod
		}
	}
	return nil, nil
}

// remoteNamespace is the namespace at the providers.
func (f *federation) remoteNamespace() string {
	return f.broker.RemoteNamespace(f.consumer.RemoteNamespace(namespace))
}

// becomes waits until a pod at the consumer is as it should be.
func (f *federation) becomes(t *testing.T, name string, is func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	eventually(t, func(ctx context.Context) error {
		if err := f.consumer.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
			return err
		}
		if err := is(&pod); err != nil {
			return fmt.Errorf("pod %s (%s): %w", name, pod.Status.Phase, err)
		}
		return nil
	})
	return &pod
}

func ready(pod *corev1.Pod) error {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return errors.New("not Ready")
}

// waits is the reason for which a container of a pod waits.
func waits(reasons ...string) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		for _, s := range pod.Status.ContainerStatuses {
			for _, reason := range reasons {
				if s.State.Waiting != nil && s.State.Waiting.Reason == reason {
					return nil
				}
			}
		}
		return fmt.Errorf("no container waits for %s", strings.Join(reasons, " or "))
	}
}

func (f *federation) gone(t *testing.T, name string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		err := f.consumer.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &corev1.Pod{})
		if err == nil {
			return fmt.Errorf("pod %s is there", name)
		}
		return client.IgnoreNotFound(err)
	})
}

// eventually waits until a condition holds.
func eventually(t *testing.T, holds func(context.Context) error) {
	t.Helper()
	require.NoError(t, sandbox.Eventually(t.Context(), patience, holds))
}
