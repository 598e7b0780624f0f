package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/criteria"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// Explanation is what the broker would decide about a pod now.
type Explanation struct {
	Pod string `json:"pod"`
	// AssignedTo is the provider where the pod is; "" if it is not assigned.
	AssignedTo string `json:"assignedTo,omitempty"`
	// Policy is the PlacementPolicy that counts; "" if none does.
	Policy string `json:"policy,omitempty"`
	// Chosen is the provider that would be chosen now, as if the pod took no room yet; "" if none fits.
	Chosen    string   `json:"chosen,omitempty"`
	Message   string   `json:"message"`
	Providers []Choice `json:"providers"`
}

// Choice is the verdict on one provider.
type Choice struct {
	Provider    string `json:"provider"`
	VirtualNode string `json:"virtualNode,omitempty"`
	// Filtered is why the provider cannot have the pod; "" if it can.
	Filtered string `json:"filtered,omitempty"`
	Score    int    `json:"score"`
	// Points by score; they add up to Score.
	Points map[string]int `json:"points,omitempty"`
}

// Pod decides about a pod of a broker's node from what the API says: the status of the ProviderClusters, the pods
// and the policies. The broker itself may know of a refusal of the last minutes besides. Nothing is changed.
//
// It returns the API's error if there is no such pod, and one that says so if the pod is not bound to the node.
func Pod(ctx context.Context, c client.Reader, node string, name types.NamespacedName, now time.Time) (*Explanation, error) {
	var pod corev1.Pod
	if err := c.Get(ctx, name, &pod); err != nil {
		return nil, err
	}
	if pod.Spec.NodeName != node {
		return nil, fmt.Errorf("pod %s is not bound to node %s (--broker-node) but to %q", name, node, pod.Spec.NodeName)
	}
	var namespace corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: name.Namespace}, &namespace); err != nil {
		return nil, err
	}
	out := &Explanation{Pod: name.String(), AssignedTo: pod.Labels[v1alpha1.ProviderLabel], Providers: []Choice{}}
	read := placement.Policies{Client: c, Programs: criteria.NewCache(2)}
	asked, err := read.CriteriaOf(ctx, &pod, &namespace)
	if errors.Is(err, placement.ErrInvalid) {
		out.Message = err.Error()
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	state, err := believed(ctx, c, node)
	if err != nil {
		return nil, err
	}
	state.Release(pod.UID)

	var d scheduler.Decision
	state.Decide(now, asked.Pod(&pod, &namespace), asked.Policy, &d)
	out.Chosen, out.Message = d.Provider, d.Message()
	if asked.Policy != nil {
		out.Policy = asked.Policy.Name
	}
	if d.Err != nil {
		out.Message = d.Err.Error()
	}
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		choice := Choice{Provider: v.Provider, VirtualNode: v.VirtualNode, Score: v.Total}
		if v.Filter != scheduler.Passed {
			choice.Filtered = v.Reason()
		} else {
			choice.Points = map[string]int{}
			for _, part := range v.Contributions() {
				choice.Points[part.Plugin] = part.Points
			}
		}
		out.Providers = append(out.Providers, choice)
	}
	return out, nil
}

// believed is the scheduler's state as the API tells it.
func believed(ctx context.Context, c client.Reader, node string) (*scheduler.State, error) {
	var providers v1alpha1.ProviderClusterList
	var virtualNodes offloadingv1beta1.VirtualNodeList
	var maps offloadingv1beta1.NamespaceMapList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&providers, &virtualNodes, &maps, &pods} {
		if err := c.List(ctx, list); err != nil {
			return nil, err
		}
	}
	state := scheduler.NewState()
	for i := range providers.Items {
		state.SetProvider(shownProvider(&providers.Items[i], virtualNodes.Items, maps.Items))
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if at := placement.PlaceOf(pod); pod.Spec.NodeName == node && at != "" && !placement.Terminal(pod) {
			state.Assign(scheduler.Assignment{
				UID: pod.UID, VirtualNode: at, App: placement.AppOf(pod), Requests: scheduler.PodRequests(&pod.Spec),
			})
		}
	}
	return state, nil
}

// shownProvider is a provider as its status shows it.
func shownProvider(pc *v1alpha1.ProviderCluster, virtualNodes []offloadingv1beta1.VirtualNode,
	maps []offloadingv1beta1.NamespaceMap,
) scheduler.Provider {
	ready := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ProviderReady)
	p := scheduler.Provider{
		ID: pc.Name, Labels: map[string]string{}, Attributes: pc.Spec.Attributes,
		Enabled: pc.Spec.Enabled == nil || *pc.Spec.Enabled, Cordoned: pc.Spec.Cordoned, Draining: pc.Spec.Drain,
		Ready:      meta.IsStatusConditionTrue(pc.Status.Conditions, v1alpha1.ProviderReady),
		Recovering: meta.IsStatusConditionFalse(pc.Status.Conditions, v1alpha1.ProviderClean),
		Namespaces: sets.New[string](), KPIs: shownKPIs(&pc.Status.KPIs),
	}
	if ready != nil {
		p.NotReady = ready.Message
	}
	for i := range virtualNodes {
		if string(virtualNodes[i].Spec.ClusterID) == pc.Name {
			for key, value := range virtualNodes[i].Spec.Labels {
				p.Labels[key] = value
			}
		}
	}
	for i := range maps {
		if maps[i].Labels[consts.RemoteClusterID] == pc.Name {
			for local, remote := range maps[i].Status.CurrentMapping {
				if remote.Phase == offloadingv1beta1.MappingAccepted {
					p.Namespaces.Insert(local)
				}
			}
		}
	}
	for i := range pc.Status.VirtualNodes {
		vn := &pc.Status.VirtualNodes[i]
		p.Slices = append(p.Slices, scheduler.Slice{
			VirtualNode: vn.Name, Granted: scheduler.FromResourceList(vn.Resources.Granted), Ready: vn.Ready,
		})
	}
	return p
}

func shownKPIs(k *v1alpha1.KPIs) scheduler.KPIs {
	share := func(text string) *float64 {
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			return &value
		}
		return nil
	}
	shown := scheduler.KPIs{
		Uptime1h: share(k.Uptime.LastHour), Uptime24h: share(k.Uptime.LastDay),
		Uptime7d: share(k.Uptime.LastWeek), Uptime30d: share(k.Uptime.LastMonth),
	}
	if k.LatencyMilliseconds != nil {
		latency := time.Duration(*k.LatencyMilliseconds) * time.Millisecond
		shown.Latency = &latency
	}
	if k.PodStart != nil {
		p50, p90 := time.Duration(k.PodStart.P50Milliseconds)*time.Millisecond, time.Duration(k.PodStart.P90Milliseconds)*time.Millisecond
		shown.PodStartP50, shown.PodStartP90 = &p50, &p90
	}
	if k.Started+k.Failed > 0 {
		rate := float64(k.Failed) / float64(k.Started+k.Failed)
		shown.FailureRate = &rate
	}
	return shown
}

// Print writes one line for every provider, and one column for every score that counts.
func (e *Explanation) Print(out io.Writer) error {
	var scores []string
	for _, p := range e.Providers {
		for score := range p.Points {
			if !slices.Contains(scores, score) {
				scores = append(scores, score)
			}
		}
	}
	slices.Sort(scores)

	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, strings.ToUpper(strings.Join(append([]string{"provider", "verdict", "score"}, scores...), "\t")))
	for _, p := range e.Providers {
		cells := []string{p.Provider, "fits", fmt.Sprint(p.Score)}
		if p.Provider == e.Chosen {
			cells[1] = "chosen"
		}
		if p.Filtered != "" {
			cells[1], cells[2] = p.Filtered, "-"
		}
		for _, score := range scores {
			if points, ok := p.Points[score]; ok {
				cells = append(cells, fmt.Sprint(points))
			} else {
				cells = append(cells, "-")
			}
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, e.Message)
	return err
}
