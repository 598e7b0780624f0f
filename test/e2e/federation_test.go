package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// federation is a running sandbox as the scenarios see it. Most of them test one hop: local (the broker) uses remote (a
// provider) through node.
type federation struct {
	*sandbox.Sandbox
	image string

	consumer, local, remote *sandbox.Cluster
	// node is the virtual node of remote in local, kubelet the component that serves it.
	node, kubelet string
}

// manyProcessors means that other suites can run beside all but the first group of TestFederation. Its ten clusters
// alone use a whole processor of a slow machine when they are idle.
var manyProcessors = runtime.NumCPU() >= 4

// asides has an element for each suite that runs at the moment: at most two, including TestFederation. A suite that
// waits for its element occupies a place of go test -parallel, while TestFederation holds its element and waits for a
// place: without enough places they would wait for each other indefinitely.
var asides = make(chan struct{}, 2)

// enoughPlaces reports whether go test -parallel has places for TestFederation and three other suites, one of which has
// parallel subtests.
func enoughPlaces() bool {
	f := flag.Lookup("test.parallel")
	if f == nil {
		return false
	}
	places, err := strconv.Atoi(f.Value.String())
	return err == nil && places >= 5
}

// aside runs a suite beside TestFederation; when that has ended, two such suites run at a time. They mostly wait for
// faults to take effect. Go starts parallel tests when all other tests have returned, or have called t.Parallel as
// TestFederation does.
func aside(t *testing.T) {
	t.Helper()
	t.Parallel()
	asides <- struct{}{}
	t.Cleanup(func() { <-asides })
}

// start brings up one consumer, the broker and two providers, with the given virtual kubelet on all hops. Only pods
// that name the node of the second provider run there, see other.
func start(t *testing.T, image string) *federation {
	t.Helper()
	s := up(t, sandbox.Options{
		Name: strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), Consumers: 1, Providers: 2, Networking: true, Image: image,
	})
	f := (&federation{Sandbox: s, image: image, consumer: s.Cluster(sandbox.Consumer(1)), local: s.Cluster(sandbox.Broker)}).
		toward(sandbox.Provider(1))
	cordoned := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.other().node}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))
	require.NoError(t, f.local.Client.Patch(t.Context(), cordoned, patch))
	return f
}

// toward returns the same federation for the hop to a provider.
func (f *federation) toward(provider string) *federation {
	hop := *f
	hop.remote, hop.node, hop.kubelet = f.Cluster(provider), provider, sandbox.Broker+"/vk-"+provider
	return &hop
}

// other returns the federation for the hop to the second provider, whose node is cordoned.
func (f *federation) other() *federation { return f.toward(sandbox.Provider(2)) }

// kubernetesVariable is the environment variable with the version of Kubernetes in all clusters. make matrix sets it.
const kubernetesVariable = "KUBERNETES"

// liqoVersion returns the version of Liqo in all clusters, which make matrix sets, or "" for the default.
func liqoVersion() string { return os.Getenv("LIQO") }

// up starts a sandbox that runs until the test ends. A failed test keeps the logs.
func up(t *testing.T, opts sandbox.Options) *sandbox.Sandbox {
	t.Helper()
	began := time.Now()
	opts.Progress = func(format string, args ...any) { t.Logf(format, args...) }
	opts.Liqo, opts.Kubernetes = liqoVersion(), os.Getenv(kubernetesVariable)
	s, err := sandbox.Up(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs are kept in %s", s.Dir())
			require.NoError(t, s.Stop())
			return
		}
		require.NoError(t, s.Down())
	})
	t.Logf("sandbox up after %s, of which %s to boot", time.Since(began).Round(time.Second), s.BootTime().Round(time.Second))
	return s
}

// namespaces creates a namespace named after the test in local, offloads it to remote, and returns its name on both
// sides.
func (f *federation) namespaces(t *testing.T) (local, remote string) {
	t.Helper()
	parts := strings.Split(t.Name(), "/")
	name := strings.ToLower(strings.ReplaceAll(parts[len(parts)-1], "_", "-"))
	if len(name) > 30 {
		name = strings.TrimRight(name[:30], "-")
	}
	f.offload(t, name)
	return name, f.local.RemoteNamespace(name)
}

// offload creates a namespace for a test, and offloads it.
func (f *federation) offload(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, f.local.Offload(t.Context(), name))
	t.Cleanup(func() { f.removeNamespace(t, name) })
}

// removeNamespace deletes a namespace of local and waits until its pods are gone on both sides, so that no scenario
// starts while the previous one is being cleaned up. Liqo takes some 15 s more to remove the namespace itself.
func (f *federation) removeNamespace(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), sandbox.MostCrowded*f.patience())
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(t, client.IgnoreNotFound(f.local.Client.Delete(ctx, ns)))
	within(ctx, t, func(ctx context.Context) error {
		here, err := pods(ctx, f.local, name)
		if err != nil {
			return err
		}
		there, err := pods(ctx, f.remote, f.local.RemoteNamespace(name))
		if err != nil {
			return err
		}
		if len(here)+len(there) > 0 {
			return fmt.Errorf("%d pods of namespace %s are left, %d remote ones", len(here), name, len(there))
		}
		return nil
	})
}

const (
	pollEvery = 50 * time.Millisecond
	// patient is how long an answer may take, or many pods may take to run, on a busy machine.
	patient = time.Minute
)

// pause returns a timer for the delay before a check is repeated. The delay grows with the duration of the check: a
// check that reads hundreds of objects leaves two thirds of the time to the tested programs.
func pause(took time.Duration) <-chan time.Time {
	return time.After(max(pollEvery, min(2*took, time.Second)))
}

// eventually calls check until it returns nil. It fails the test with the last error if that takes longer than timeout
// on a machine that is not overloaded.
func eventually(t *testing.T, timeout time.Duration, check func(ctx context.Context) error) {
	t.Helper()
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), sandbox.MostCrowded*timeout)
	defer cancel()
	var last error
	for {
		began := time.Now()
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		if waited := time.Since(start); ctx.Err() != nil || waited > sandbox.Crowded(timeout) {
			require.NoError(t, last, "after %s, of %s on a calm machine", waited.Round(time.Second), timeout)
			t.FailNow()
		}
		select {
		case <-ctx.Done():
		case <-pause(time.Since(began)):
		}
	}
}

// within is eventually with a context that may outlive the test.
func within(ctx context.Context, t *testing.T, check func(context.Context) error) {
	t.Helper()
	var last error
	for {
		began := time.Now()
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil {
			last = err // Keep the last error, not the timeout.
		}
		select {
		case <-ctx.Done():
			require.NoError(t, last)
		case <-pause(time.Since(began)):
		}
	}
}

// pods lists the pods of a namespace.
func pods(ctx context.Context, c *sandbox.Cluster, namespace string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.Client.List(ctx, &list, client.InNamespace(namespace))
	return list.Items, err
}

// uids maps the names of the pods of a namespace to their UIDs.
func uids(t *testing.T, c *sandbox.Cluster, namespace string) map[string]types.UID {
	t.Helper()
	list, err := pods(t.Context(), c, namespace)
	require.NoError(t, err)
	out := map[string]types.UID{}
	for i := range list {
		out[list[i].Name] = list[i].UID
	}
	return out
}

// allRunning returns nil if exactly n pods exist and all of them are Running and Ready.
func allRunning(ctx context.Context, c *sandbox.Cluster, namespace string, n int) error {
	list, err := pods(ctx, c, namespace)
	if err != nil {
		return err
	}
	running := 0
	var why string
	for i := range list {
		if list[i].Status.Phase == corev1.PodRunning && podReady(&list[i]) {
			running++
		} else {
			why = fmt.Sprintf("; %s is %s on %q%s", list[i].Name, list[i].Status.Phase, list[i].Spec.NodeName, falseConditions(&list[i]))
		}
	}
	if running != n || len(list) != n {
		return fmt.Errorf("%s %s: %d of %d pods run, want %d%s", c.Name, namespace, running, len(list), n, why)
	}
	return nil
}

// falseConditions returns the messages of the conditions of a pod that are not True.
func falseConditions(p *corev1.Pod) (says string) {
	for _, c := range p.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			says += fmt.Sprintf(", %s: %s", c.Type, c.Message)
		}
	}
	return says
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func container() corev1.Container {
	return corev1.Container{
		Name: "main", Image: "registry.k8s.io/pause:3.10",
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("8Mi"),
		}},
	}
}

func newPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container()}, TerminationGracePeriodSeconds: ptr.To(int64(1)),
		},
	}
}

func newDeployment(namespace, name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	template := newPod(namespace, name)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template.Spec},
		},
	}
}

// patience is how long pods may take to run. The stock virtual kubelet shares ten retries per second among all pods.
// After some hundred conflicts (100 pods that were created or deleted) a new pod may have to wait for as many retries.
// Every scenario after "a restart recreates no pod" expects this known bug.
func (f *federation) patience() time.Duration {
	if f.image == sandbox.ImageStock {
		return 3 * time.Minute
	}
	return time.Minute
}

// runPod creates a pod in local and waits until it runs on both sides.
func (f *federation) runPod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	require.NoError(t, f.local.Client.Create(t.Context(), pod))
	eventually(t, f.patience(), func(ctx context.Context) error {
		if err := f.local.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning || !podReady(pod) {
			return fmt.Errorf("pod %s is %s, conditions %v", pod.Name, pod.Status.Phase, pod.Status.Conditions)
		}
		return nil
	})
}

// remotePod reads the remote copy of a pod of local.
func (f *federation) remotePod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	var remote corev1.Pod
	key := client.ObjectKey{Namespace: f.local.RemoteNamespace(pod.Namespace), Name: pod.Name}
	err := f.remote.Client.Get(ctx, key, &remote)
	return &remote, err
}

// setRemoteStatus changes the status of the remote copy of a pod, as the
// provider's kubelet would.
func (f *federation) setRemoteStatus(t *testing.T, pod *corev1.Pod, change func(*corev1.PodStatus)) {
	t.Helper()
	setStatus(t, f.remote, client.ObjectKey{Namespace: f.local.RemoteNamespace(pod.Namespace), Name: pod.Name}, change)
}

// setStatus changes the status of a pod of a cluster, as its kubelet would.
func setStatus(t *testing.T, c *sandbox.Cluster, key client.ObjectKey, change func(*corev1.PodStatus)) {
	t.Helper()
	eventually(t, 10*time.Second, func(ctx context.Context) error {
		var pod corev1.Pod
		if err := c.Client.Get(ctx, key, &pod); err != nil {
			return err
		}
		change(&pod.Status)
		return c.Client.Status().Update(ctx, &pod)
	})
}
