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
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// costlyFilters are what a tenant can write into one annotation: each once held up every decision of the broker, or took
// gigabytes of its memory. The %d makes every one another text.
var costlyFilters = map[string]string{
	"repeats":  "pod.annotations['x'].matches('" + strings.Repeat("a{0,999}", 50) + "$b%d')",
	"borrows":  "pod.annotations['x'].matches(pod.annotations['pattern']) || pod.name == '%d'",
	"doubles":  "optional.of(%d)" + strings.Repeat(".optMap(a, a)", 60) + ".hasValue()",
	"adds":     strings.Repeat("[[1] + [1]].all(x, ", 20) + "x.size() > %d" + strings.Repeat(")", 20),
	"searches": strings.Repeat("pod.annotations['x'].matches('(a?){100}b') || ", 40) + "pod.name == '%d'",
	"loops":    "[1, 2, 3].all(a, pod.annotations['x'].split('').all(b, pod.annotations['x'].split('').all(c, b + c != '%d')))",
}

// sized is the size of an attack: ATTACK=full has those of a large federation, which take minutes.
func sized(usual, full int) int {
	if os.Getenv("ATTACK") == "full" {
		return full
	}
	return usual
}

// slack is what a pod may take longer beside twice its time without an attack: other suites run on the machine.
const slack = 3 * time.Second

// timeToRun is the median of how long pods take to run that are created one after the other, bound to the node.
func (b *brokered) timeToRun(t *testing.T, namespace, name string, adapt ...func(*corev1.Pod)) time.Duration {
	t.Helper()
	var took []time.Duration
	for i := range 5 {
		began, name := time.Now(), fmt.Sprintf("%s-%d", name, i)
		b.create(t, namespace, name, 1, func(p *corev1.Pod) {
			p.Spec.NodeName = brokerNode
			for _, a := range adapt {
				a(p)
			}
		})
		eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, namespace, name+"-0", "") })
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// scheduled has kube-scheduler bind a pod.
func scheduled(p *corev1.Pod) { p.Spec.NodeName = "" }

// bindsAll answers nil when kube-scheduler has bound all pods of a namespace: those that wait for a provider leave the Node room.
func (b *brokered) bindsAll(ctx context.Context, namespace string) error {
	list, err := pods(ctx, b.broker, namespace)
	unbound := 0
	for i := range list {
		if list[i].Spec.NodeName == "" {
			unbound++
		}
	}
	if unbound > 0 {
		err = fmt.Errorf("%d of %d pods are not bound", unbound, len(list))
	}
	return err
}

// flood has a tenant create pods that no provider fits, follow logs, and open connections that it leaves silent, while
// a pod of another one is assigned as if there were none.
func (b *brokered) flood(t *testing.T) {
	stuck, followed, silent := sized(600, 3000), sized(60, 200), sized(300, 500)
	ns, theirs := b.namespace(t), b.namespace(t)
	idle := b.timeToRun(t, ns, "idle", scheduled)

	b.create(t, theirs, "talker", 1, func(p *corev1.Pod) { p.Spec.NodeName = brokerNode })
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, theirs, "talker-0", "") })
	ctx, leave := context.WithCancel(t.Context())
	var followers sync.WaitGroup
	t.Cleanup(func() {
		leave()
		followers.Wait()
	})
	for range followed {
		followers.Go(func() {
			stream, err := b.broker.Kube.CoreV1().Pods(theirs).GetLogs("talker-0", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
			if err != nil {
				return // The API server or the broker may limit them.
			}
			defer stream.Close()
			_, _ = io.Copy(io.Discard, stream)
		})
	}
	f := &federation{Sandbox: b.Sandbox, local: b.broker, node: brokerNode}
	kubelet := strings.TrimPrefix(f.kubeletURL(t), "https://")
	for range silent {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", kubelet)
		require.NoError(t, err)
		t.Cleanup(func() { _ = connection.Close() })
	}
	b.create(t, theirs, "stuck", stuck, annotated(brokeringv1alpha1.FilterAnnotation, "false"))
	eventually(t, 5*patient, func(ctx context.Context) error { return b.bindsAll(ctx, theirs) })

	busy := b.timeToRun(t, ns, "busy", scheduled)
	t.Logf("a pod runs after %s, and after %s with %d pods that no provider fits", idle, busy, stuck)
	assert.Less(t, busy, 2*idle+slack)
	eventually(t, patient, func(ctx context.Context) error {
		list, err := pods(ctx, b.broker, theirs)
		if err != nil {
			return err
		}
		explained := 0
		for i := range list {
			if c := podCondition(&list[i], brokeringv1alpha1.ConditionAssigned); c != nil && c.Reason == "NoProviderFits" {
				explained++
			}
		}
		if explained < min(stuck, 300) {
			return fmt.Errorf("%d of %d pods are explained", explained, stuck) // They are, 20 a second.
		}
		return nil
	})
}

// costly has pods with such filters wait, while the pods of others are assigned as if there were none.
func (b *brokered) costly(t *testing.T) {
	ns := b.namespace(t)
	each := sized(7, 84)
	idle := b.timeToRun(t, ns, "idle")

	for name, filter := range costlyFilters {
		number := 0
		b.create(t, ns, name, each, func(p *corev1.Pod) {
			number++
			p.Annotations = map[string]string{
				"x": strings.Repeat("a", 1024), "pattern": "(a?){999}b",
				brokeringv1alpha1.FilterAnnotation: fmt.Sprintf(filter, number),
			}
		})
	}
	busy := b.timeToRun(t, ns, "busy")
	t.Logf("a pod runs after %s, and after %s with %d pods of costly filters", idle, busy, each*len(costlyFilters))
	assert.Less(t, busy, 2*idle+slack)
	for name := range costlyFilters {
		for i := range each {
			b.explained(t, ns, fmt.Sprintf("%s-%d", name, i), "InvalidCriteria")
		}
	}
}
