package containers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// TestContainers runs pods of a consumer in containers of providers, over two hops.
func TestContainers(t *testing.T) {
	f := start(t)
	t.Run("pods", func(t *testing.T) { // The tests after these change nodes.
		for name, test := range map[string]func(*testing.T, *federation){
			"logs, exec, cp and port-forward": testPeople, "init and sidecar containers, hooks and volumes": testParts,
			"a container exceeds its memory": testMemory, "a container crashes": testCrashes, "an image does not exist": testNoImage,
			"a pod ends gracefully": testEnds, "a Job and its failure policy": testJob, "a probe fails": testProbe,
			"names are resolved": testNames, "images are pulled": testPulls,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, f)
			})
		}
	})
	t.Run("a virtual kubelet is ready where its probe asks", func(t *testing.T) { testProbedPorts(t, f) })
	t.Run("containers are those of the pods", func(t *testing.T) { testCounts(t, f) })
	t.Run("a volume keeps its data", func(t *testing.T) { testVolume(t, f) })
	t.Run("a kubelet and a runtime are killed", func(t *testing.T) { testKilled(t, f) })
	t.Run("the broker and the virtual kubelets are killed", func(t *testing.T) { testComponentsKilled(t, f) })
	t.Run("a node is drained", func(t *testing.T) { testDrained(t, f) })
}

func testPeople(t *testing.T, f *federation) {
	f.create(t, shell("people", serve, func(pod *corev1.Pod) {
		web := container("web", "")
		web.Image, web.Command = sandbox.ImageWeb, nil
		pod.Spec.Containers = append(pod.Spec.Containers, web)
	}))
	pod := f.becomes(t, "people", ready)
	c, there := f.at(t.Context(), "people")
	require.NotNil(t, c)
	require.Equal(t, c.MachineNode(), there.Spec.NodeName)
	require.True(t, strings.HasPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://"))

	require.Equal(t, "started\n", f.kubectl(t, f.consumer, "logs", "-n", namespace, "people", "-c", "main"))
	require.Contains(t, f.kubectl(t, f.consumer, "logs", "-n", namespace, "people", "-c", "main", "--timestamps", "--tail=1"), "Z started")
	run := func(command ...string) (string, error) {
		return f.try(t.Context(), f.consumer, "a line\n",
			append([]string{"exec", "-i", "-n", namespace, "people", "-c", "main", "--"}, command...)...)
	}
	out, err := run("hostname")
	require.NoError(t, err)
	require.Equal(t, "people\n", out)
	out, err = run("sh", "-c", "cat; exit 7")
	require.Equal(t, "a line\n", out)
	require.ErrorContains(t, err, "exit status 7")
	_, err = run("no-such-program")
	require.ErrorContains(t, err, "no-such-program")

	from := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(from, []byte(strings.Repeat("0123456789", 100_000)), 0o600))
	f.kubectl(t, f.consumer, "cp", from, namespace+"/people:/tmp/file", "-c", "main")
	out, err = run("stat", "-c", "%s", "/tmp/file")
	require.NoError(t, err)
	require.Equal(t, "1000000\n", out)

	requests(t, f, "people", `"pod":"people"`)
	testTerminal(t, f, "people")
}

// testTerminal runs a shell with a terminal, whose size changes.
func testTerminal(t *testing.T, f *federation, pod string) {
	t.Helper()
	const watched = `while true; do now=$(stty size); [ "$now" = "$last" ] || echo "size $now"; last=$now; sleep 0.1; done`
	target := f.consumer.Kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: "main", Stdin: true, Stdout: true, TTY: true,
			Command: []string{"sh", "-c", watched},
		}, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewSPDYExecutor(f.consumer.Config, http.MethodPost, target)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	out, in := io.Pipe()
	defer in.Close()
	changes := make(chan remotecommand.TerminalSize, 1)
	ended := make(chan error, 1)
	stdin, typing := io.Pipe()
	defer typing.Close()
	go func() {
		ended <- executor.StreamWithContext(ctx, remotecommand.StreamOptions{
			Stdin: stdin, Stdout: in, Tty: true, TerminalSizeQueue: terminal{ctx, changes},
		})
		_ = in.Close()
	}()
	lines := bufio.NewScanner(out)
	for _, size := range []remotecommand.TerminalSize{{Width: 120, Height: 40}, {Width: 33, Height: 11}} {
		changes <- size
		for want := fmt.Sprintf("size %d %d", size.Height, size.Width); !strings.Contains(lines.Text(), want); {
			if last := lines.Text(); !lines.Scan() {
				require.Fail(t, "the terminal ended", "no line %q, the last one is %q: %v, %v", want, last, lines.Err(), <-ended)
			}
		}
	}
	cancel()
	go func() { _, _ = io.Copy(io.Discard, out) }()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// terminal is a remotecommand.TerminalSizeQueue.
type terminal struct {
	ctx     context.Context
	changes <-chan remotecommand.TerminalSize
}

func (s terminal) Next() *remotecommand.TerminalSize {
	select {
	case size := <-s.changes:
		return &size
	case <-s.ctx.Done():
		return nil
	}
}

// requests forwards a port of a pod with kubectl, and requires an answer.
func requests(t *testing.T, f *federation, pod, answer string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(f.Tools(), "kubectl"), "--kubeconfig="+f.consumer.Kubeconfig(),
		"port-forward", "-n", namespace, "--address=127.0.0.1", pod, fmt.Sprintf(":%d", sandbox.WebPort))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	// Forwarding from 127.0.0.1:PORT -> 8080.
	address := strings.Fields(line)[2]
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(body), answer)
}

func testParts(t *testing.T, f *federation) {
	conf := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "conf"}, Data: map[string]string{"a": "1"}}
	mounts := []corev1.VolumeMount{
		{Name: "conf", MountPath: "/conf"},
		{Name: "shared", MountPath: "/shared"},
		{Name: "down", MountPath: "/down"},
		{Name: "conf", MountPath: "/one", SubPath: "a"},
	}
	f.create(t, conf, shell("parts", serve, func(pod *corev1.Pod) {
		first, side := container("first", "cat /conf/a > /shared/first"), container("side", serve)
		first.VolumeMounts, side.RestartPolicy = mounts[:2], ptr.To(corev1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = []corev1.Container{first, side}
		main := &pod.Spec.Containers[0]
		main.VolumeMounts = mounts
		main.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "echo 2 > /shared/hook"}},
		}}
		main.Env = []corev1.EnvVar{{Name: "LIMIT", ValueFrom: &corev1.EnvVarSource{
			ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "requests.memory"},
		}}}
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "conf"},
			}}},
			{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "down", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
				Items: []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			}}},
		}
	}))
	pod := f.becomes(t, "parts", ready)
	require.Equal(t, "Completed", pod.Status.InitContainerStatuses[0].State.Terminated.Reason)
	require.NotNil(t, pod.Status.InitContainerStatuses[1].State.Running)
	read := func(ctx context.Context) (string, error) {
		return f.try(ctx, f.consumer, "", "exec", "-n", namespace, "parts", "-c", "main", "--", "sh", "-c",
			"cat /shared/first; echo; cat /shared/hook /one; echo; cat /down/name; echo; echo $LIMIT; cat /conf/a")
	}
	out, err := read(t.Context())
	require.NoError(t, err)
	require.Equal(t, "1\n2\n1\nparts\n16777216\n1", out)

	conf.Data["a"] = "changed"
	require.NoError(t, f.consumer.Client.Update(t.Context(), conf))
	eventually(t, func(ctx context.Context) error {
		out, err := read(ctx)
		if err == nil && !strings.HasSuffix(out, "\nchanged") {
			err = fmt.Errorf("the mounted file is %q", out)
		}
		return err
	})
}

// testNames requires that the name of a Service is resolved in a pod, at the provider that runs both its pod and its
// client.
func testNames(t *testing.T, f *federation) {
	together := func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{"brokering.liqo.io/filter": "provider.id == '" + f.providers[0].Name + "'"}
	}
	f.create(t, shell("named", "", together, func(pod *corev1.Pod) {
		pod.Labels, pod.Spec.Containers[0].Image = map[string]string{"app": "named"}, sandbox.ImageWeb
		pod.Spec.Containers[0].Command = nil
	}), shell("client", serve, together), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "named"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "named"},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(sandbox.WebPort)}},
		},
	})
	f.becomes(t, "named", ready)
	f.becomes(t, "client", ready)
	// nslookup tries all search domains, and fails if one has no answer. The option -T of Debian's wget crashes.
	const get = `name=$0.$(awk '/^search/ {print $2}' /etc/resolv.conf)
		answer=$(nslookup $name 2>&1) || { echo "$answer"; exit 9; }
		timeout 5 wget -q -O - http://$(echo "$answer" | awk '/^Name:/ {found=1} found && /^Address/ {print $2; exit}')`
	run := func(ctx context.Context, service string) (string, error) {
		return f.try(ctx, f.consumer, "", "exec", "-n", namespace, "client", "--", "sh", "-c", get, service)
	}
	eventually(t, func(ctx context.Context) error {
		out, err := run(ctx, "named")
		if err == nil && !strings.Contains(out, `"pod":"named"`) {
			err = fmt.Errorf("the Service answers %q", out)
		}
		return err
	})
	out, err := run(t.Context(), "no-such-name")
	require.ErrorContains(t, err, "exit status 9")
	require.Contains(t, out, "NXDOMAIN")
}

// testPulls pulls images from a registry: with a pull secret of the consumer, by tag and by digest. Pulls fail without
// credentials, and with a tag that does not exist.
func testPulls(t *testing.T, f *federation) {
	image := func(ref string, secrets ...string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = ref, corev1.PullAlways
			for _, name := range secrets {
				pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
			}
		}
	}
	credentials := fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`,
		sandbox.RegistryName, sandbox.RegistryUser, sandbox.RegistryPassword)
	f.create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pull"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(credentials)},
	}, shell("public", serve, image(sandbox.ImagePublic)), shell("private", serve, image(sandbox.ImagePrivate, "pull")),
		shell("denied", serve, image(sandbox.ImagePrivate)), shell("no-tag", serve, image(sandbox.RegistryName+"/public/busybox:none")))
	f.becomes(t, "private", ready)
	public := f.becomes(t, "public", ready)
	digest := public.Status.ContainerStatuses[0].ImageID
	require.Contains(t, digest, sandbox.RegistryName+"/public/busybox@sha256:")
	f.create(t, shell("digest", serve, image(digest)))
	f.becomes(t, "digest", ready)
	for name, why := range map[string]string{
		"denied": "401 Unauthorized|no basic auth credentials", // The second one is containerd 2's.
		"no-tag": "not found",
	} {
		last := ""
		f.becomes(t, name, func(pod *corev1.Pod) error {
			for _, s := range pod.Status.ContainerStatuses { // There are none while it moves to the other provider.
				if s.State.Waiting != nil && s.State.Waiting.Message != "" {
					last = s.State.Waiting.Message
				}
			}
			if !regexp.MustCompile(why).MatchString(last) {
				return fmt.Errorf("the last message is %q", last)
			}
			return nil
		})
		// Pods that start nowhere move to and fro, and hold capacity that the next tests need.
		f.kubectl(t, f.consumer, "delete", "pod", "-n", namespace, name, "--wait=false")
	}
}

func testMemory(t *testing.T, f *federation) {
	f.create(t, shell("memory", "x=a; while true; do x=$x$x; done", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")}
	}))
	f.becomes(t, "memory", func(pod *corev1.Pod) error {
		for _, s := range pod.Status.ContainerStatuses {
			last := s.LastTerminationState.Terminated
			if last != nil && last.Reason == "OOMKilled" && last.ExitCode == 137 && s.RestartCount > 0 {
				return nil
			}
		}
		return fmt.Errorf("no container was OOMKilled: %+v", pod.Status.ContainerStatuses)
	})
}

func testCrashes(t *testing.T, f *federation) {
	f.create(t, shell("crashes", "echo before the end; exit 3"))
	pod := f.becomes(t, "crashes", waits("CrashLoopBackOff"))
	last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated
	require.NotNil(t, last)
	require.EqualValues(t, 3, last.ExitCode)
	require.Equal(t, "before the end\n", f.kubectl(t, f.consumer, "logs", "-n", namespace, "crashes"))
}

func testNoImage(t *testing.T, f *federation) {
	f.create(t, shell("no-image", serve, func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "sandbox.local/none:dev" }))
	f.becomes(t, "no-image", waits("ErrImagePull", "ImagePullBackOff"))
}

func testEnds(t *testing.T, f *federation) {
	const slow = `trap 'sleep 2; grep -q hook /shared/x; exit $?' TERM; while true; do sleep 0.1; done`
	f.create(t, shell("ends", slow, func(pod *corev1.Pod) {
		pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(30))
		main := &pod.Spec.Containers[0]
		main.VolumeMounts = []corev1.VolumeMount{{Name: "shared", MountPath: "/shared"}}
		main.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "echo hook >> /shared/x"}},
		}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		pod.Finalizers = []string{"example.com/read-the-end"}
	}))
	pod := f.becomes(t, "ends", ready)
	require.NoError(t, f.consumer.Client.Delete(t.Context(), pod))
	pod = f.becomes(t, "ends", func(pod *corev1.Pod) error {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("it has not ended")
		}
		return nil
	})
	end := pod.Status.ContainerStatuses[0].State.Terminated
	require.NotNil(t, end)
	require.Zero(t, end.ExitCode, "the hook ran before it was asked to end")
	asked := pod.DeletionTimestamp.Add(-30 * time.Second)
	require.GreaterOrEqual(t, end.FinishedAt.Sub(asked), 2*time.Second, "it had the time that it takes")
	pod.Finalizers = nil
	require.NoError(t, f.consumer.Client.Update(t.Context(), pod))
	f.gone(t, "ends")
}

func testJob(t *testing.T, f *federation) {
	job := func(name, script string) *batchv1.Job {
		pod := shell(name, script).Spec
		pod.RestartPolicy = corev1.RestartPolicyNever
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To(int32(4)), Template: corev1.PodTemplateSpec{Spec: pod},
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action: batchv1.PodFailurePolicyActionFailJob,
				OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
					Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42},
				},
			}}},
		}}
	}
	f.create(t, job("completes", "exit 0"), job("fails", "exit 42"))
	for name, want := range map[string]batchv1.JobConditionType{"completes": batchv1.JobComplete, "fails": batchv1.JobFailed} {
		eventually(t, func(ctx context.Context) error {
			var job batchv1.Job
			if err := f.consumer.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &job); err != nil {
				return err
			}
			for _, c := range job.Status.Conditions {
				if c.Type == want && c.Status == corev1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("Job %s: %+v", name, job.Status)
		})
	}
}

func testProbe(t *testing.T, f *federation) {
	f.create(t, shell("probed", "touch /tmp/ok; "+serve, func(pod *corev1.Pod) {
		probe := func() *corev1.Probe {
			return &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"cat", "/tmp/ok"}}},
				PeriodSeconds: 1, FailureThreshold: 3,
			}
		}
		pod.Spec.Containers[0].ReadinessProbe, pod.Spec.Containers[0].LivenessProbe = probe(), probe()
	}))
	f.becomes(t, "probed", ready)
	f.kubectl(t, f.consumer, "exec", "-n", namespace, "probed", "--", "rm", "/tmp/ok")
	f.becomes(t, "probed", func(pod *corev1.Pod) error {
		if pod.Status.ContainerStatuses[0].RestartCount == 0 {
			return fmt.Errorf("it was not restarted")
		}
		return nil
	})
	f.becomes(t, "probed", ready)
}

// testCounts requires that the containers which run are those that Kubernetes says: at the consumer, and in the runtimes of
// the providers.
func testCounts(t *testing.T, f *federation) {
	eventually(t, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := f.consumer.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
			return err
		}
		said := map[string]bool{}
		for i := range pods.Items {
			for _, s := range slices.Concat(pods.Items[i].Status.ContainerStatuses, pods.Items[i].Status.InitContainerStatuses) {
				if s.State.Running != nil {
					said[strings.TrimPrefix(s.ContainerID, "containerd://")] = true
				}
			}
		}
		running := 0
		for _, c := range f.providers {
			ids, err := f.runningIn(ctx, c)
			if err != nil {
				return err
			}
			for _, id := range ids {
				if !said[id] {
					return fmt.Errorf("container %s runs at %s, and no pod of the consumer shows it", id, c.Name)
				}
			}
			running += len(ids)
		}
		if running != len(said) || running == 0 {
			return fmt.Errorf("%d containers run, the consumer shows %d", running, len(said))
		}
		return nil
	})
}

// runningIn returns the ids of the consumer's containers that run at a cluster, as its runtime says.
func (f *federation) runningIn(ctx context.Context, c *sandbox.Cluster) (ids []string, err error) {
	conn, err := grpc.NewClient("unix://"+c.Runtime(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	list, err := runtimev1.NewRuntimeServiceClient(conn).ListContainers(ctx, &runtimev1.ListContainersRequest{
		Filter: &runtimev1.ContainerFilter{
			State:         &runtimev1.ContainerStateValue{State: runtimev1.ContainerState_CONTAINER_RUNNING},
			LabelSelector: map[string]string{kubelettypes.KubernetesPodNamespaceLabel: f.remoteNamespace()},
		},
	})
	if err != nil {
		return nil, err
	}
	for _, container := range list.Containers {
		ids = append(ids, container.Id)
	}
	return ids, nil
}

// testKilled kills the kubelet and the runtime of a provider's node. Containers run on, and are the same afterwards.
func testKilled(t *testing.T, f *federation) {
	f.create(t, shell("stays", serve))
	before := f.becomes(t, "stays", ready)
	c, _ := f.at(t.Context(), "stays")
	require.NotNil(t, c)
	for _, component := range []string{"kubelet", "containerd"} {
		require.NoError(t, f.Kill(c.Name+"/"+component))
	}
	for _, component := range []string{"containerd", "kubelet"} {
		require.NoError(t, f.Restart(t.Context(), c.Name+"/"+component))
	}
	f.create(t, shell("later", serve, func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{"brokering.liqo.io/filter": fmt.Sprintf("provider.id == '%s'", c.Name)}
	}))
	f.becomes(t, "later", ready)
	after := f.becomes(t, "stays", ready)
	require.Equal(t, before.UID, after.UID)
	require.Equal(t, before.Status.ContainerStatuses[0].ContainerID, after.Status.ContainerStatuses[0].ContainerID)
	require.Zero(t, after.Status.ContainerStatuses[0].RestartCount)
	require.Equal(t, "started\n", f.kubectl(t, f.consumer, "logs", "-n", namespace, "stays"))
	testCounts(t, f)
}

// testComponentsKilled kills the containers of the broker's leader and of all virtual kubelets on the way of a pod, and
// freezes the leader that follows. The kubelets of their nodes start them again. The pod's container runs on, and pods that
// are created meanwhile start.
func testComponentsKilled(t *testing.T, f *federation) {
	f.create(t, shell("kept", serve))
	before := f.becomes(t, "kept", ready)
	leader, err := f.BrokerLeader(t.Context())
	require.NoError(t, err)
	restarts := map[string]int32{} // By cluster and pod, before.
	for _, c := range []*sandbox.Cluster{f.broker, f.consumer} {
		var pods corev1.PodList
		require.NoError(t, c.Client.List(t.Context(), &pods))
		for i := range pods.Items {
			if s := pods.Items[i].Status.ContainerStatuses; len(s) > 0 {
				restarts[c.Name+"/"+pods.Items[i].Name] = s[0].RestartCount
			}
		}
	}
	for _, target := range []string{leader, "broker/vk-provider1", "broker/vk-provider2", "consumer1/vk-broker"} {
		require.NoError(t, f.Kill(target))
	}
	f.create(t, shell("meanwhile", serve))
	f.becomes(t, "meanwhile", ready)
	restarted := func(c *sandbox.Cluster, name string) {
		eventually(t, func(ctx context.Context) error {
			var pods corev1.PodList
			if err := c.Client.List(ctx, &pods); err != nil {
				return err
			}
			for i := range pods.Items {
				p := &pods.Items[i]
				if strings.HasPrefix(p.Name, name) && ready(p) == nil &&
					p.Status.ContainerStatuses[0].RestartCount > restarts[c.Name+"/"+p.Name] {
					return nil
				}
			}
			return fmt.Errorf("no pod %s of %s is ready again", name, c.Name)
		})
	}
	restarted(f.broker, strings.TrimPrefix(leader, "broker/"))
	restarted(f.broker, "vk-provider1-")
	restarted(f.broker, "vk-provider2-")
	restarted(f.consumer, "vk-broker-")

	frozen := ""
	eventually(t, func(ctx context.Context) (err error) {
		frozen, err = f.BrokerLeader(ctx)
		return err
	})
	require.NoError(t, f.Freeze(frozen))
	t.Cleanup(func() { require.NoError(t, f.Resume(frozen)) })
	eventually(t, func(ctx context.Context) error {
		if next, err := f.BrokerLeader(ctx); err != nil || next == frozen {
			return fmt.Errorf("no other replica than %s leads: %w", frozen, err)
		}
		return nil
	})
	f.create(t, shell("frozen", serve))
	f.becomes(t, "frozen", ready)
	require.NoError(t, f.Resume(frozen))

	after := f.becomes(t, "kept", ready)
	require.Equal(t, before.Status.ContainerStatuses[0].ContainerID, after.Status.ContainerStatuses[0].ContainerID)
	require.Zero(t, after.Status.ContainerStatuses[0].RestartCount)
	testCounts(t, f)
}

// testDrained drains the node of a provider, which has no other one: the Deployment's pods run at the other provider.
func testDrained(t *testing.T, f *federation) {
	f.kubectl(t, f.consumer, "create", "deployment", "-n", namespace, "web", "--image="+sandbox.ImageWeb, "--replicas=2")
	pods := func(ctx context.Context) (at map[string]int, err error) {
		at = map[string]int{}
		var list corev1.PodList
		if err := f.consumer.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app": "web"}); err != nil {
			return nil, err
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.DeletionTimestamp == nil && ready(p) == nil {
				if c, _ := f.at(ctx, p.Name); c != nil {
					at[c.Name]++
				}
			}
		}
		return at, nil
	}
	drained, other := f.providers[0], f.providers[1]
	eventually(t, func(ctx context.Context) error {
		at, err := pods(ctx)
		if err == nil && at[drained.Name]+at[other.Name] != 2 {
			err = fmt.Errorf("pods are Ready at %v", at)
		}
		if at[drained.Name] == 0 {
			drained, other = other, drained
		}
		return err
	})
	out, err := f.try(t.Context(), drained, "", "drain", drained.MachineNode(), "--ignore-daemonsets", "--delete-emptydir-data", "--force",
		"--timeout=15s", "--pod-selector=app=web")
	require.NoError(t, err, out)
	eventually(t, func(ctx context.Context) error {
		at, err := pods(ctx)
		if err == nil && at[other.Name] != 2 {
			err = fmt.Errorf("pods are Ready at %v", at)
		}
		return err
	})
	f.kubectl(t, drained, "uncordon", drained.MachineNode())
}
