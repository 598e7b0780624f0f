package dashboard

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
)

// small is a federation of three providers and two consumers, with one pending pod.
func small() *fake {
	now := time.Now()
	f := &fake{unselected: map[string]bool{"milan-edge": true}, listeners: map[chan event]struct{}{}}
	f.providers = []api.Provider{
		provider("frankfurt-gpu", "eu-central", 0.031, 16, 9, now),
		provider("helsinki-dc1", "eu-north", 0.045, 64, 21, now),
		provider("milan-edge", "eu-south", 0.0225, 8, 7.5, now),
	}
	gpus := f.providers[0].Resources
	gpus.Granted["nvidia.com/gpu"], gpus.Assigned["nvidia.com/gpu"] = resource.MustParse("4"), resource.MustParse("3")
	milan := &f.providers[2]
	milan.Ready, milan.KPIs.Uptime24h, milan.KPIs.LatencyMilliseconds = false, ptr.To(0.913), nil
	milan.Conditions[0] = api.Condition{
		Type: "Ready", Status: "False", Reason: "Unreachable", Message: "the API server of the cluster does not answer",
		Since: now.Add(-4 * time.Minute),
	}
	pods := []struct {
		consumer, provider, app string
		n                       int
	}{
		{consumerID, "frankfurt-gpu", "trainer-7f9c", 3},
		{consumerID, "helsinki-dc1", "web-59fd9848b7", 8},
		{"consumer2", "helsinki-dc1", "shop-api-6c4d", 5},
		{"consumer2", "milan-edge", "camera-5b", 4},
		{consumerID, "", "batch-night", 1},
	}
	for _, g := range pods {
		for i := range g.n {
			f.placements = append(f.placements, placed(g.consumer, g.provider, fmt.Sprintf("%s-%s", g.app, suffix(i)), now, i))
		}
	}
	f.sort()
	return f
}

// large is a federation with so many providers and placements that the dashboard must still be usable with it.
func large(providers, placements int) *fake {
	now := time.Now()
	f := &fake{unselected: map[string]bool{}, listeners: map[chan event]struct{}{}}
	for i := range providers {
		f.providers = append(f.providers, provider(fmt.Sprintf("provider-%04d", i), fmt.Sprintf("region-%d", i%7),
			0.01+float64(i%50)/1000, 16, float64(i%16), now))
	}
	for i := range placements {
		f.placements = append(f.placements,
			placed(fmt.Sprintf("consumer%d", i%20), f.providers[i%providers].ID, fmt.Sprintf("pod-%05d", i), now, i))
	}
	f.sort()
	return f
}

func (f *fake) sort() {
	slices.SortFunc(f.placements, func(a, b api.Placement) int {
		return strings.Compare(a.Namespace+"\x00"+a.Pod, b.Namespace+"\x00"+b.Pod)
	})
}

func suffix(i int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	out := make([]byte, 5)
	for at, step := range []int{7, 11, 5, 1, 13} {
		out[at] = letters[(i*step+at*at)%len(letters)]
	}
	return string(out)
}

func placed(consumer, provider, pod string, now time.Time, i int) api.Placement {
	p := api.Placement{
		Namespace: "shop-" + consumer, Pod: pod, Consumer: consumer, Provider: provider, VirtualNode: provider,
		Phase: "Running", Ready: true, Created: now.Add(-time.Duration(i+2) * 17 * time.Minute),
	}
	if provider == "" {
		p.Phase, p.Ready = "Pending", false
		p.Message = "0/3 provider clusters fit: 2 insufficient nvidia.com/gpu, 1 not ready"
		return p
	}
	p.Since, p.Score = ptr.To(p.Created.Add(time.Second)), ptr.To(81+i%9)
	p.Decision = fmt.Sprintf("%d: price 29, spread 29, free %d", *p.Score, *p.Score-58)
	return p
}

func provider(id, region string, price, cpu, used float64, now time.Time) api.Provider {
	q := func(format string, value float64) resource.Quantity {
		return resource.MustParse(fmt.Sprintf(format, value))
	}
	amounts := func(cpu, memory, pods float64) corev1.ResourceList {
		return corev1.ResourceList{"cpu": q("%g", cpu), "memory": q("%gMi", memory), "pods": q("%g", pods)}
	}
	pods := math.Ceil(used)
	resources := v1alpha1.Resources{
		Granted: amounts(cpu, cpu*4096, 110), Assigned: amounts(used, used*2300, pods),
		Free: amounts(cpu-used, cpu*4096-used*2300, 110-pods),
	}
	condition := func(kind, reason, message string) api.Condition {
		return api.Condition{Type: kind, Status: "True", Reason: reason, Message: message, Since: now.Add(-31 * time.Hour)}
	}
	return api.Provider{
		ID: id, Enabled: true, Ready: true, Region: region, Price: &price, Resources: resources, Pods: int32(pods),
		Attributes: map[string]string{"region": region, "price": fmt.Sprint(price), "tier": "gold"},
		KPIs: api.KPIs{
			Uptime1h: ptr.To(1.0), Uptime24h: ptr.To(0.9987), Uptime7d: ptr.To(0.9987),
			LatencyMilliseconds: ptr.To(int64(4 + len(id)%9)), PodStartP50Millis: ptr.To(int64(840)),
			PodStartP90Millis: ptr.To(int64(2300)), FailureRate: ptr.To(0.004), MovedAway: 3,
		},
		VirtualNodes: []api.VirtualNode{{Name: id, Ready: true, Pods: int32(pods), Resources: resources}},
		Conditions: []api.Condition{
			condition("Ready", "Ready", "can be given pods"), condition("Reachable", "Answers", "the API server answers"),
			condition("KubeletReady", "LeaseLive", "the virtual kubelet's lease is live"),
			condition("NetworkReady", "Up", "the peering's network is up"),
			condition("Clean", "Clean", "nothing is left to remove"),
		},
		Created: now.Add(-31 * time.Hour),
	}
}

func madeUpHistory(id string, now time.Time) api.History {
	h := api.History{ID: id, Since: now.Add(-2 * time.Hour), WatchedSince: ptr.To(now.Add(-20 * time.Hour))}
	for i := range 240 {
		wave := 6 + 3*math.Sin(float64(i+len(id)*9)/11) + float64(i*7919%5)/2
		h.Samples = append(h.Samples, api.Sample{
			At: now.Add(time.Duration(i-240) * 30 * time.Second), Ready: true, LatencyMilliseconds: ptr.To(int64(wave)),
		})
	}
	gap := func(before, length time.Duration, kind string) {
		h.Gaps = append(h.Gaps, api.Gap{From: now.Add(-before), To: now.Add(length - before), Kind: kind})
	}
	gap(9*time.Hour, 90*time.Minute, "Unobserved")
	if id == "milan-edge" {
		gap(5*time.Hour, 25*time.Minute, "Down")
		gap(4*time.Minute, 4*time.Minute, "Down")
		for i := 230; i < 240; i++ {
			h.Samples[i].LatencyMilliseconds, h.Samples[i].Ready = nil, false
		}
	}
	return h
}
