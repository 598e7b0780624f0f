package providers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state/disruption"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// StatusOf returns the status that the broker writes for a provider whose network is connected, by the state and its
// VirtualNodes, which the virtual kubelets of the broker's node serve. pkg/simulate uses it.
func StatusOf(pc *v1alpha1.ProviderCluster, known *state.Provider, virtualNodes []*offloadingv1beta1.VirtualNode, node string,
) v1alpha1.ProviderClusterStatus {
	return statusOf(pc, known, objects{virtualNodes: virtualNodes, connected: true}, node)
}

// statusOf returns the status of a provider, by the state and the objects of the API.
func statusOf(pc *v1alpha1.ProviderCluster, known *state.Provider, in objects, node string) v1alpha1.ProviderClusterStatus {
	status := v1alpha1.ProviderClusterStatus{
		ObservedGeneration: pc.Generation, KPIs: known.KPIs, Conditions: slices.Clone(pc.Status.Conditions),
	}
	granted, assigned := resources.Amounts{}, resources.Amounts{}
	for i, vn := range in.virtualNodes {
		if i > 0 && in.virtualNodes[i-1].Name == vn.Name {
			continue // The name is not unique; the list in the status has each name once.
		}
		at := known.Assigned[vn.Name]
		hard := resources.RoundDown(vn.Spec.ResourceQuota.Hard)
		ready := known.Kubelets[vn.Name] && servesNode(vn, node)
		closed := closedOf(known, vn.Name)
		status.VirtualNodes = append(status.VirtualNodes, v1alpha1.VirtualNodeStatus{
			Name: vn.Name, Ready: ready, Pods: int32(at.Pods),
			Resources: amounts(hard, at.Resources), Closed: closed, Reserved: reservedOf(known, vn.Name),
			Reason: reasonOf(vn, ready, in.sharedNames.Has(vn.Name), known.Kubelets[vn.Name], closed),
		})
		status.Pods += int32(at.Pods)
		granted.Add(hard)
		assigned.Add(at.Resources)
	}
	status.Resources = amounts(granted, assigned)
	for _, c := range conditionsOf(known, status.VirtualNodes, in.connected) {
		c.ObservedGeneration = pc.Generation
		if c.Type == v1alpha1.ProviderReachable && c.Status == metav1.ConditionFalse {
			// Another leader counts the outage from its beginning.
			c.LastTransitionTime = metav1.NewTime(known.UnreachableSince)
		}
		meta.SetStatusCondition(&status.Conditions, c)
	}
	setDrained(&status, pc, known)
	setStartsPods(&status, pc.Generation)
	setSlicesGranted(&status, pc.Generation, in.denied)
	status.Summary = summarize(&status)
	return status
}

// notPeered returns the status of a cluster of which there is no VirtualNode.
func notPeered(pc *v1alpha1.ProviderCluster, denied []*authv1beta1.ResourceSlice) v1alpha1.ProviderClusterStatus {
	status := *pc.Status.DeepCopy()
	status.ObservedGeneration = pc.Generation
	status.VirtualNodes, status.Resources, status.Pods, status.Summary = nil, v1alpha1.Resources{}, 0, v1alpha1.Summary{}
	message := "there is no VirtualNode of this cluster"
	if len(denied) > 0 {
		message += ": " + reasonOfDenial(denied[0]) + ", " + denials(denied)
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.ProviderReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotPeered,
		Message: message, ObservedGeneration: pc.Generation,
	})
	setDrained(&status, pc, &state.Provider{Draining: true})
	setStartsPods(&status, pc.Generation)
	setSlicesGranted(&status, pc.Generation, denied)
	return status
}

func closedOf(known *state.Provider, virtualNode string) *v1alpha1.Closed {
	c, closed := known.Closed[virtualNode]
	if !closed {
		return nil
	}
	return &v1alpha1.Closed{Since: metav1.NewTime(c.Since), Owners: c.Owners}
}

func reservedOf(known *state.Provider, virtualNode string) *v1alpha1.Reserved {
	r, reserved := known.Reserved[virtualNode]
	if !reserved {
		return nil
	}
	requests := corev1.ResourceList{}
	for name, amount := range r.Requests {
		requests[name] = resources.Quantity(name, amount)
	}
	return &v1alpha1.Reserved{Pod: r.Pod.String(), UID: r.UID, Since: metav1.NewTime(r.Since), Requests: requests}
}

// setStartsPods sets the condition StartsPods while slices take no pods because those assigned to them did not start.
func setStartsPods(status *v1alpha1.ProviderClusterStatus, generation int64) {
	var closed []string
	for i := range status.VirtualNodes {
		if vn := &status.VirtualNodes[i]; vn.Closed != nil {
			text := vn.Name + " since " + vn.Closed.Since.UTC().Format(time.RFC3339)
			if len(vn.Closed.Owners) == 1 {
				text += " (pods of " + vn.Closed.Owners[0] + ")"
			}
			closed = append(closed, text)
		}
	}
	if len(closed) == 0 {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ProviderStartsPods)
		return
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.ProviderStartsPods, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPodsDoNotStart,
		Message: untrusted.Text("pods assigned there did not start, so only one pod per minute is tried: " +
			strings.Join(closed, ", ")),
		ObservedGeneration: generation,
	})
}

// reasonOf returns why no pod can be assigned to a VirtualNode, in the words of a verdict; "" if pods can be.
func reasonOf(vn *offloadingv1beta1.VirtualNode, ready, shared, live bool, closed *v1alpha1.Closed) string {
	switch {
	case shared:
		return verdict.NameNotUnique.String()
	case vn.DeletionTimestamp != nil:
		return verdict.Terminating.String()
	case ready && closed != nil && len(closed.Owners) != 1:
		return verdict.StartsNothing.String()
	case ready:
		return ""
	case live:
		return verdict.ServesAnotherNode.String()
	}
	return verdict.NotReady.String()
}

// servesNode reports whether the virtual kubelet of a VirtualNode is started for a Node, by its template. The template
// is fixed when the VirtualNode is made (Liqo's pkg/webhooks/virtualnode). Liqo's own virtual kubelet holds the same
// lease, and serves a Node of its own.
func servesNode(vn *offloadingv1beta1.VirtualNode, node string) bool {
	if vn.Spec.Template == nil {
		return true
	}
	return slices.ContainsFunc(vn.Spec.Template.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.Contains(c.Args, "--broker-node="+node)
	})
}

// conditionsOf returns the conditions of a provider, Ready first.
func conditionsOf(known *state.Provider, virtualNodes []v1alpha1.VirtualNodeStatus, connected bool) []metav1.Condition {
	made := []metav1.Condition{reachable(known), kubeletReady(known, virtualNodes), networkReady(connected)}
	ready := metav1.Condition{Type: v1alpha1.ProviderReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady}
	for _, c := range made {
		if c.Status != metav1.ConditionTrue {
			ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonNotReady
			ready.Message = strings.TrimSuffix(c.Type+": "+c.Reason+", "+c.Message, ", ")
			break
		}
	}
	clean := metav1.Condition{Type: v1alpha1.ProviderClean, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNothingLeft}
	if known.Unclean {
		clean.Status, clean.Reason = metav1.ConditionFalse, v1alpha1.ReasonMovedPodsLeft
		clean.Message = "pods that were moved away may still run there"
	}
	return append(append([]metav1.Condition{ready}, made...), clean)
}

func reachable(known *state.Provider) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ProviderReachable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAnswers}
	switch {
	case !known.UnreachableSince.IsZero():
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonNoAnswer, known.Problem
	case !known.Probed:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonNotProbedYet
	case !known.Confirmed:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonNotAnsweredYet, known.Problem
	case known.Unusable:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, cmp.Or(known.Reason, v1alpha1.ReasonRejects), known.Problem
	}
	return c
}

func kubeletReady(known *state.Provider, virtualNodes []v1alpha1.VirtualNodeStatus) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ProviderKubeletReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonLeaseLost,
		Message: "no virtual kubelet holds a live lease",
	}
	switch {
	case !known.Probed:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonNotProbedYet, ""
	case slices.ContainsFunc(virtualNodes, func(vn v1alpha1.VirtualNodeStatus) bool { return vn.Ready }):
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonLeaseLive, ""
	case slices.ContainsFunc(virtualNodes, func(vn v1alpha1.VirtualNodeStatus) bool { return known.Kubelets[vn.Name] }):
		c.Reason = v1alpha1.ReasonServesAnotherNode
		c.Message = "its virtual kubelet was not started with --broker-node of this broker: recreate the VirtualNode, " +
			"which is older than the options that set the flag"
	}
	return c
}

func networkReady(connected bool) metav1.Condition {
	if connected {
		return metav1.Condition{Type: v1alpha1.ProviderNetworkReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConnected}
	}
	return metav1.Condition{
		Type: v1alpha1.ProviderNetworkReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotConnected,
		Message: "the network to the provider is not established",
	}
}

// setDrained sets the condition Drained while the spec drains the provider. It is True once the scheduler assigns no
// pod there any more, and the provider has removed all that were there.
func setDrained(status *v1alpha1.ProviderClusterStatus, pc *v1alpha1.ProviderCluster, known *state.Provider) {
	if !pc.Spec.Drain {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ProviderDrained)
		return
	}
	c := metav1.Condition{
		Type: v1alpha1.ProviderDrained, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonEmpty, ObservedGeneration: pc.Generation,
	}
	switch {
	case status.Pods > 0 || !known.Draining:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonPodsLeft
		c.Message = podsLeft(int(status.Pods), &known.MovesWaiting, &known.Staying)
	case known.Unclean:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonMovedPodsLeft, "pods that were moved away may still run there"
	}
	meta.SetStatusCondition(&status.Conditions, c)
}

// podsLeft describes the pods that have not left a provider, and why some of them do not leave it now.
func podsLeft(pods int, waiting, staying *disruption.Waiting) string {
	message := fmt.Sprintf("%d pods are left", pods)
	if pods == 1 {
		message = "1 pod is left"
	}
	switch staying.Pods {
	case 0:
	case 1:
		message += ", 1 stays because no other provider fits (" + staying.Example + ")"
	default:
		message += fmt.Sprintf(", %d stay because no other provider fits, such as %s", staying.Pods, staying.Example)
	}
	switch waiting.Pods {
	case 0:
		return message
	case 1:
		return message + ", 1 waits for its replicas to be Ready (" + waiting.Example + ")"
	}
	return message + fmt.Sprintf(", %d wait for their replicas to be Ready, such as %s", waiting.Pods, waiting.Example)
}

// amounts returns the granted, the assigned and the free amounts as quantities.
func amounts(granted, assigned resources.Amounts) v1alpha1.Resources {
	r := v1alpha1.Resources{Granted: corev1.ResourceList{}, Assigned: corev1.ResourceList{}, Free: corev1.ResourceList{}}
	for name, amount := range granted {
		r.Granted[name] = resources.Quantity(name, amount)
		r.Assigned[name] = resources.Quantity(name, assigned[name])
		r.Free[name] = resources.Quantity(name, max(0, amount-assigned[name]))
	}
	return r
}

// summarize returns the columns that kubectl cannot compute.
func summarize(status *v1alpha1.ProviderClusterStatus) v1alpha1.Summary {
	r := status.Resources
	s := v1alpha1.Summary{CPU: assignedOf(r, corev1.ResourceCPU), Memory: assignedOf(r, corev1.ResourceMemory)}
	if share, err := strconv.ParseFloat(status.KPIs.Uptime.LastDay, 64); err == nil {
		s.Uptime = strconv.FormatFloat(100*share, 'f', 1, 64) + "%"
	}
	if took := status.KPIs.LatencyMilliseconds; took != nil {
		s.Latency = (time.Duration(*took) * time.Millisecond).String()
	}
	return s
}

// assignedOf returns "assigned/granted".
func assignedOf(r v1alpha1.Resources, name corev1.ResourceName) string {
	granted, ok := r.Granted[name]
	if !ok {
		return ""
	}
	assigned := r.Assigned[name]
	return assigned.String() + "/" + granted.String()
}

// kpiIntervals is how many status intervals apart a status is written in which only KPIs changed, as they do with every
// probe.
const kpiIntervals = 6

// writeStatus writes the status of a provider, unless it was written recently: conditions and reasons are written
// within a second, assigned amounts within the status interval, KPIs more rarely (kpiIntervals). It returns when to try
// again.
func (c *Controller) writeStatus(ctx context.Context, before, updated *v1alpha1.ProviderCluster) (time.Duration, error) {
	c.mu.Lock()
	since := c.Clock.Since(c.written[before.Name].at)
	c.mu.Unlock()
	interval := c.StatusInterval
	switch {
	case !sameConditions(&before.Status, &updated.Status):
		interval = min(interval, time.Second)
	case since < interval: // It is not written yet, whatever has changed.
	case sameButKPIs(&before.Status, &updated.Status):
		interval *= kpiIntervals
	}
	if wait := interval - since; wait > 0 {
		return min(wait, c.StatusInterval), nil
	}
	began, stored := c.Clock.Now(), updated.DeepCopy()
	if err := c.Client.Status().Patch(ctx, stored, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("status of ProviderCluster %s: %w", before.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written[before.Name] = write{at: began, version: stored.ResourceVersion}
	return c.StatusInterval, nil
}

// write is a write of a status: when it began, and the resourceVersion of the object after it.
type write struct {
	at      time.Time
	version string
}

// wrote reports whether an update of a ProviderCluster is nothing but the last write of its status by this controller,
// which need not be reconciled.
func (c *Controller) wrote(update event.UpdateEvent) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return update.ObjectNew.GetResourceVersion() == c.written[update.ObjectNew.GetName()].version &&
		update.ObjectNew.GetGeneration() == update.ObjectOld.GetGeneration()
}

// sameConditions compares the parts that administrators act on: the conditions, and which VirtualNodes accept pods.
func sameConditions(a, b *v1alpha1.ProviderClusterStatus) bool {
	return slices.EqualFunc(a.Conditions, b.Conditions, func(x, y metav1.Condition) bool {
		return x.Type == y.Type && x.Status == y.Status
	}) && slices.EqualFunc(a.VirtualNodes, b.VirtualNodes, func(x, y v1alpha1.VirtualNodeStatus) bool {
		return x.Name == y.Name && x.Reason == y.Reason
	})
}

func sameButKPIs(a, b *v1alpha1.ProviderClusterStatus) bool {
	x, y := *a, *b
	x.KPIs, y.KPIs = v1alpha1.KPIs{}, v1alpha1.KPIs{}
	x.Summary.Latency, y.Summary.Latency = "", ""
	x.Summary.Uptime, y.Summary.Uptime = "", ""
	return equality.Semantic.DeepEqual(&x, &y)
}
