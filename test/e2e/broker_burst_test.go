package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// burst creates pods that together request more than all providers grant. They are bound to the node by name, because
// kube-scheduler would hold back the pods that do not fit.
func (b *brokered) burst(t *testing.T) {
	const count, each = 150, 400 // each is in millicores.
	b.withGPUs(t)
	ns := b.namespace(t)
	watch, grants := b.watchGrants(t)
	fit := 0
	for _, granted := range grants {
		fit += int(granted.MilliValue() / each)
	}
	require.Less(t, fit, count, "the providers grant too much: %v", grants)

	began := time.Now()
	b.create(t, ns, "web", count, func(p *corev1.Pod) {
		p.Spec.NodeName = brokerNode
		requests(corev1.ResourceCPU, fmt.Sprintf("%dm", each))(p)
	})
	t.Logf("created after %s", time.Since(began).Round(time.Second))
	eventually(t, 2*time.Minute, func(ctx context.Context) error {
		list, err := pods(ctx, b.broker, ns)
		if err != nil {
			return err
		}
		running, explained := 0, 0
		for i := range list {
			c := podCondition(&list[i], brokeringv1alpha1.ConditionAssigned)
			switch {
			case list[i].Status.Phase == corev1.PodRunning && podReady(&list[i]):
				running++
			case c != nil && containsAll(c.Message, []string{"no provider cluster fits: insufficient cpu"}):
				explained++
			}
		}
		if running != fit || explained != count-fit {
			return fmt.Errorf("%d pods run, want %d; %d are explained", running, fit, explained)
		}
		return nil
	})
	t.Logf("%d run after %s", fit, time.Since(began).Round(time.Second))

	// Capacity for all remaining pods.
	list, err := pods(t.Context(), b.broker, ns)
	require.NoError(t, err)
	assigned := slices.DeleteFunc(list, func(p corev1.Pod) bool { return p.Labels[brokeringv1alpha1.ProviderLabel] == "" })
	gone := 2 * (count - fit)
	for i := range gone {
		require.NoError(t, b.broker.Client.Delete(t.Context(), &assigned[i]))
	}
	b.settle(t, ns, count-gone)
	watch.end(t)
	assert.GreaterOrEqual(t, watch.events, 4*fit, "each pod came, was assigned and ran, and so did its ShadowPod")
}

// watchGrants checks at every moment that no slice's pods request more CPUs than it grants: the pods that are assigned
// in the broker's cluster, and the ShadowPods at the providers.
func (b *brokered) watchGrants(t *testing.T) (*watching, map[string]resource.Quantity) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &watching{stop: stop}
	t.Cleanup(stop)
	grants := map[string]resource.Quantity{}
	var virtualNodes offloadingv1beta1.VirtualNodeList
	require.NoError(t, b.broker.Client.List(ctx, &virtualNodes))
	for i := range virtualNodes.Items {
		grants[virtualNodes.Items[i].Name] = virtualNodes.Items[i].Spec.ResourceQuota.Hard[corev1.ResourceCPU]
	}

	here := usage{grants: grants, w: w, where: "assigned"}
	w.follow(ctx, t, b.broker, &corev1.PodList{}, "", func(event apiwatch.EventType, o client.Object) {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			return
		}
		at := pod.Labels[brokeringv1alpha1.VirtualNodeLabel]
		if at == "" { // A pod that is leaving uses capacity until it has left.
			at = pod.Annotations[brokeringv1alpha1.MovingFromAnnotation]
		}
		if event == apiwatch.Deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			at = ""
		}
		here.set(pod.Namespace+"/"+pod.Name, at, &pod.Spec)
	})
	for _, provider := range b.providers {
		there := usage{grants: grants, w: w, where: "running at " + provider.Name}
		w.follow(ctx, t, provider, &offloadingv1beta1.ShadowPodList{}, "", func(event apiwatch.EventType, o client.Object) {
			shadow, ok := o.(*offloadingv1beta1.ShadowPod)
			if !ok {
				return
			}
			at := shadow.Labels[forge.LiqoOriginClusterNodeName]
			if _, ours := grants[at]; event == apiwatch.Deleted || !ours {
				at = ""
			}
			there.set(shadow.Namespace+"/"+shadow.Name, at, &shadow.Spec.Pod)
		})
	}
	return w, grants
}

// usage adds up the requests of each slice's pods, in millicores.
type usage struct {
	grants map[string]resource.Quantity
	w      *watching
	where  string

	of  map[string]placed
	sum map[string]int64
}

type placed struct {
	at     string
	millis int64
}

func (u *usage) set(name, at string, spec *corev1.PodSpec) {
	if u.of == nil {
		u.of, u.sum = map[string]placed{}, map[string]int64{}
	}
	now := placed{at: at}
	for i := range spec.Containers {
		now.millis += spec.Containers[i].Resources.Requests.Cpu().MilliValue()
	}
	before := u.of[name]
	u.sum[before.at] -= before.millis
	u.sum[at] += now.millis
	u.of[name] = now
	granted, known := u.grants[at]
	if known && before.at != at && u.sum[at] > granted.MilliValue() {
		u.w.fault("%s with %s: %dm, %s granted %s", at, name, u.sum[at], u.where, granted.String())
	}
}
