package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view/podindex"
)

func TestWhatAPodShows(t *testing.T) {
	ready := func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want api.Placement
	}{
		"a pod without a decision waits": {
			pod: podIn("team", "web"), want: api.Placement{Phase: "Pending"},
		},
		"a pod that waits has the reason": {
			pod:  podIn("team", "web", unassignable("0/3 provider clusters fit: 3 disabled")),
			want: api.Placement{Phase: "Pending", Message: "0/3 provider clusters fit: 3 disabled"},
		},
		"an assigned pod has its provider, the time and the score": {
			pod: podIn("team", "web", assigned("p2", 84), ready),
			want: api.Placement{
				Provider: "p2", VirtualNode: "p2-slice", Since: ptr.To(noon.Add(time.Second)), Score: ptr.To(84),
				Decision: "p2 84: price 29, free 26", Phase: "Running", Ready: true,
			},
		},
		"the score needs no contributions": {
			pod: podIn("team", "web", assigned("p2", 84), decided("p2 0")),
			want: api.Placement{
				Provider: "p2", VirtualNode: "p2-slice", Since: ptr.To(noon.Add(time.Second)), Score: ptr.To(0),
				Decision: "p2 0", Phase: "Running",
			},
		},
		"the score may stand alone": {
			pod: podIn("team", "web", assigned("p2", 84), decided("84: price 29")),
			want: api.Placement{
				Provider: "p2", VirtualNode: "p2-slice", Since: ptr.To(noon.Add(time.Second)), Score: ptr.To(84),
				Decision: "84: price 29", Phase: "Running",
			},
		},
		"what cannot be read is absent": {
			pod: podIn("team", "web", assigned("p2", 84), decided("because"), func(p *corev1.Pod) {
				p.Annotations[v1alpha1.AssignedAtAnnotation] = "yesterday"
			}),
			want: api.Placement{Provider: "p2", VirtualNode: "p2-slice", Decision: "because", Phase: "Running"},
		},
		"an assigned pod does not say why it once waited": {
			pod:  podIn("team", "web", unassignable("1 disabled"), assigned("p2", 1), decided("")),
			want: api.Placement{Provider: "p2", VirtualNode: "p2-slice", Since: ptr.To(noon.Add(time.Second)), Phase: "Running"},
		},
		"nor does one that is leaving": {
			pod:  podIn("team", "web", unassignable("1 disabled"), leaving("p1-slice")),
			want: api.Placement{MovingFrom: "p1-slice", Decision: "moving: p1-slice is drained", Phase: "Pending"},
		},
		"nor one that ended before it was assigned": {
			pod:  podIn("team", "web", unassignable("1 disabled"), in(corev1.PodFailed)),
			want: api.Placement{Phase: "Failed"},
		},
		"a provider without a virtual node is no place": {
			pod:  podIn("team", "web", func(p *corev1.Pod) { p.Labels[v1alpha1.ProviderLabel] = "p2" }),
			want: api.Placement{Phase: "Pending"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Namespace, c.want.Pod, c.want.Consumer, c.want.Created = "team", "web", "c1", noon
			require.Equal(t, c.want, podindex.NewPod(c.pod, "c1").Shown)
		})
	}
}

func decided(text string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[v1alpha1.DecisionAnnotation] = text }
}

func TestPodsOfOtherNodesAreNotShown(t *testing.T) {
	f := newFed(Config{})
	elsewhere := podIn("team", "web", func(p *corev1.Pod) { p.Spec.NodeName = "another" })
	f.sees(elsewhere)
	require.False(t, f.has("team", "web"))

	f.sees(podIn("team", "web"))
	require.True(t, f.has("team", "web"))
	f.sees(elsewhere)
	require.False(t, f.has("team", "web"), "another pod has the name of the one that was here")
}
