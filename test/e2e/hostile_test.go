package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// costlyFilters are filters that a tenant can write into one annotation. Each of them once blocked all decisions of the
// broker, or used gigabytes of its memory. The %d makes the text of each pod's filter unique.
var costlyFilters = map[string]string{
	"repeats":  "pod.annotations['x'].matches('" + strings.Repeat("a{0,999}", 50) + "$b%d')",
	"borrows":  "pod.annotations['x'].matches(pod.annotations['pattern']) || pod.name == '%d'",
	"doubles":  "optional.of(%d)" + strings.Repeat(".optMap(a, a)", 60) + ".hasValue()",
	"adds":     strings.Repeat("[[1] + [1]].all(x, ", 20) + "x.size() > %d" + strings.Repeat(")", 20),
	"searches": strings.Repeat("pod.annotations['x'].matches('(a?){100}b') || ", 40) + "pod.name == '%d'",
	"loops":    "[1, 2, 3].all(a, pod.annotations['x'].split('').all(b, pod.annotations['x'].split('').all(c, b + c != '%d')))",
}

// sized returns the size of an attack. With ATTACK=full it is the size for a large federation, which takes minutes.
func sized(usual, full int) int {
	if os.Getenv("ATTACK") == "full" {
		return full
	}
	return usual
}

// timeToRun returns the median time until pods run that are created one after the other.
func timeToRun(t *testing.T, name string, create func(name string), runs func(ctx context.Context, name string) error) time.Duration {
	t.Helper()
	var took []time.Duration
	for i := range 5 {
		began, name := time.Now(), fmt.Sprintf("%s-%d", name, i)
		create(name)
		eventually(t, patient, func(ctx context.Context) error { return runs(ctx, name) })
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// timeToRun returns the median time until the second consumer sees its pods run.
func (c *chain) timeToRun(t *testing.T, namespace, name string) time.Duration {
	t.Helper()
	honest := c.consumers[1]
	create := func(name string) { c.pod(t, honest, namespace, name, "true") }
	return timeToRun(t, name, create, func(ctx context.Context, name string) error {
		var p corev1.Pod
		if err := honest.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &p); err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod %s is %s", name, p.Status.Phase)
		}
		return nil
	})
}

// requireNoDelay requires that pods of an honest consumer run within twice their time before an attack, or within a
// second. It measures up to five times, because an attack lasts while other load on the machine passes.
func (c *chain) requireNoDelay(t *testing.T, namespace string, idle time.Duration, attack string) {
	t.Helper()
	var busy []time.Duration
	most := max(2*idle, time.Second)
	for i := range 5 {
		busy = append(busy, c.timeToRun(t, namespace, fmt.Sprintf("busy-%d", i)))
		if busy[i] <= most {
			break
		}
	}
	t.Logf("a pod of another consumer runs after %s, and after %v with %s", idle, busy, attack)
	assert.LessOrEqual(t, slices.Min(busy), most)
}

// requireService requires that pods of an honest consumer run within the usual timeout while an attack arrives. The API
// servers are busy with the attack itself then, so the time is only logged.
func (c *chain) requireService(t *testing.T, namespace string, arrived <-chan struct{}) {
	t.Helper()
	var most time.Duration
	for i, more := 0, true; more; i++ {
		most = max(most, c.timeToRun(t, namespace, fmt.Sprintf("meanwhile-%d", i)))
		select {
		case <-arrived:
			more = false
		default:
		}
	}
	t.Logf("while the attack arrives a pod of another consumer runs after %s, the largest median of five", most)
}

// intrude creates ShadowPods in a namespace of the first consumer at the broker, with the credentials of its
// ResourceSlice, as its own virtual kubelet does.
func (c *chain) intrude(t *testing.T, namespace, name string, count int, adapt func(*corev1.Pod)) {
	t.Helper()
	attacker := c.consumers[0]
	direct := clientOf(t, identity(t, attacker))
	var group errgroup.Group
	group.SetLimit(20)
	for i := range count {
		shadow := shadowPod(attacker, namespace, fmt.Sprintf("%s-%d", name, i), adapt)
		group.Go(func() error { return direct.Create(t.Context(), shadow) })
	}
	assert.NoError(t, group.Wait())
}

// shadowPod returns a ShadowPod that a consumer creates itself. Because of the node name in its label, the consumer's
// virtual kubelet ignores it.
func shadowPod(consumer *sandbox.Cluster, namespace, name string, adapt func(*corev1.Pod)) *offloadingv1beta1.ShadowPod {
	pod := newPod(consumer.RemoteNamespace(namespace), name)
	adapt(pod)
	pod.Labels = with(pod.Labels, "offloading.liqo.io/origin", consumer.Name)
	pod.Labels = with(pod.Labels, "offloading.liqo.io/destination", sandbox.Broker)
	pod.Labels = with(pod.Labels, "offloading.liqo.io/nodename", "elsewhere")
	return &offloadingv1beta1.ShadowPod{ObjectMeta: pod.ObjectMeta, Spec: offloadingv1beta1.ShadowPodSpec{Pod: pod.Spec}}
}

func clientOf(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	config.QPS = -1
	scheme := runtime.NewScheme()
	require.NoError(t, offloadingv1beta1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

// bindsAll returns nil if kube-scheduler has bound all pods of a namespace: pods that wait for a provider do not use
// the Node's capacity.
func (b *brokered) bindsAll(ctx context.Context, namespace string, count int) error {
	list, err := pods(ctx, b.broker, namespace)
	bound := 0
	for i := range list {
		if list[i].Spec.NodeName != "" {
			bound++
		}
	}
	if err == nil && bound < count {
		err = fmt.Errorf("%d of %d pods are bound", bound, count)
	}
	return err
}

// flood makes a consumer create pods that no provider fits, follow logs, and open connections that stay silent, with
// the credentials of its peering. Pods of the other consumer run as if there were no attack.
func (c *chain) flood(t *testing.T) {
	stuck, followed, silent := sized(300, 3000), sized(60, 200), sized(300, 500)
	attacker, theirs, ns := c.consumers[0], c.offload(t, c.consumers[0]), c.offload(t, c.consumers[1])
	c.pod(t, attacker, theirs, "talker", "true")
	eventually(t, patient, func(ctx context.Context) error { return c.settled(ctx, attacker.RemoteNamespace(theirs), 1) })
	idle := c.timeToRun(t, ns, "idle")

	ctx, leave := context.WithCancel(t.Context())
	var followers sync.WaitGroup
	t.Cleanup(func() {
		leave()
		followers.Wait()
	})
	talk := newClient(t, identity(t, attacker)).CoreV1().Pods(attacker.RemoteNamespace(theirs))
	var open atomic.Int64
	for range followed {
		followers.Go(func() {
			stream, err := talk.GetLogs("talker", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
			if err != nil {
				return // The API server or the broker may limit them.
			}
			defer stream.Close()
			open.Add(1)
			_, _ = io.Copy(io.Discard, stream)
		})
	}
	eventually(t, patient, func(context.Context) error {
		if open.Load() < 30 { // The broker limits them.
			return fmt.Errorf("%d of %d logs are followed", open.Load(), followed)
		}
		return nil
	})
	f := &federation{Sandbox: c.Sandbox, local: c.broker, node: brokerNode}
	kubelet := strings.TrimPrefix(f.kubeletURL(t), "https://")
	for range silent {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", kubelet)
		require.NoError(t, err)
		t.Cleanup(func() { _ = connection.Close() })
	}
	arrived := make(chan struct{})
	go func() {
		defer close(arrived)
		c.intrude(t, theirs, "stuck", stuck, annotated(brokeringv1alpha1.FilterAnnotation, "false"))
	}()
	c.requireService(t, ns, arrived)
	eventually(t, 5*patient, func(ctx context.Context) error { return c.bindsAll(ctx, attacker.RemoteNamespace(theirs), stuck+1) })

	c.requireNoDelay(t, ns, idle, fmt.Sprintf("%d pods that no provider fits, and %d followed logs", stuck, open.Load()))
	eventually(t, patient, func(ctx context.Context) error {
		list, err := pods(ctx, c.broker, attacker.RemoteNamespace(theirs))
		if err != nil {
			return err
		}
		explained := 0
		for i := range list {
			if c := podCondition(&list[i], brokeringv1alpha1.ConditionAssigned); c != nil && c.Reason == "NoProviderFits" {
				explained++
			}
		}
		if explained < min(stuck, 200) {
			return fmt.Errorf("%d of %d pods are explained", explained, stuck) // The broker explains 20 pods a second.
		}
		return nil
	})
}

// tenant returns a client of a ServiceAccount that may edit a namespace of a consumer.
func tenant(t *testing.T, consumer *sandbox.Cluster, namespace string) kubernetes.Interface {
	t.Helper()
	const name = "tenant"
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	require.NoError(t, consumer.Client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}))
	require.NoError(t, consumer.Client.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}))
	token, err := consumer.Kube.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	require.NoError(t, err)
	config := rest.AnonymousClientConfig(consumer.Config)
	config.BearerToken = token.Status.Token
	return newClient(t, config)
}

// costly makes pods of a tenant with such filters wait, while the pods of others are assigned as usual.
func (c *chain) costly(t *testing.T) {
	attacker, theirs, ns := c.consumers[0], c.offload(t, c.consumers[0]), c.offload(t, c.consumers[1])
	each, by := sized(7, 84), tenant(t, attacker, theirs).CoreV1().Pods(theirs)
	idle := c.timeToRun(t, ns, "idle")

	arrived := make(chan struct{})
	go func() {
		defer close(arrived)
		for name, filter := range costlyFilters {
			for i := range each {
				p := newPod(theirs, fmt.Sprintf("%s-%d", name, i))
				p.Annotations = map[string]string{
					"x": strings.Repeat("a", 1024), "pattern": "(a?){999}b",
					brokeringv1alpha1.FilterAnnotation: fmt.Sprintf(filter, i),
				}
				_, err := by.Create(t.Context(), p, metav1.CreateOptions{})
				assert.NoError(t, err)
			}
		}
	}()
	c.requireService(t, ns, arrived)
	c.requireNoDelay(t, ns, idle, fmt.Sprintf("%d pods with costly filters", each*len(costlyFilters)))
	for name := range costlyFilters {
		for i := range each {
			c.explained(t, attacker.RemoteNamespace(theirs), fmt.Sprintf("%s-%d", name, i), "InvalidCriteria")
		}
	}
}
