package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func TestAShadowPodIsDeletedWithItsPodOnly(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	after := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	pod := func(at string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "pod", UID: "uid", Labels: map[string]string{v1alpha1.VirtualNodeLabel: at, v1alpha1.ProviderLabel: "p"},
		}}
		if change != nil {
			change(p)
		}
		return p
	}
	shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{
		Name: "pod", Annotations: map[string]string{PodUID: "uid"}, Labels: map[string]string{forge.LiqoOriginClusterNodeName: "a"},
	}}
	for name, tc := range map[string]struct {
		pods   []Change
		faults []Fault
		want   int
	}{
		"it is assigned there": {[]Change{{At: after(1), After: pod("a", nil)}}, nil, 1},
		"it leaves":            {[]Change{{At: after(1), After: pod("a", nil)}, {At: after(58), After: pod("", nil)}}, nil, 0},
		"it has just come back": {[]Change{
			{At: after(1), After: pod("a", nil)}, {At: after(50), After: pod("", nil)}, {At: after(59), After: pod("a", nil)},
		}, nil, 0},
		"it is being deleted": {[]Change{{At: after(1), After: pod("a", nil)}, {At: after(2), After: pod("a", func(p *corev1.Pod) {
			p.DeletionTimestamp = &metav1.Time{Time: after(2)}
		})}}, nil, 0},
		"it is seen to be deleted a little later": {[]Change{
			{At: after(1), After: pod("a", nil)},
			{At: after(61), After: pod("a", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: after(59)} })},
		}, nil, 0},
		"it is deleted later": {[]Change{{At: after(1), After: pod("a", nil)}, {At: after(62), Before: pod("a", nil)}}, nil, 1},
		"it leaves later":     {[]Change{{At: after(1), After: pod("a", nil)}, {At: after(61), After: pod("", nil)}}, nil, 1},
		"it has ended": {
			[]Change{{At: after(1), After: pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}}, nil, 0,
		},
		"it is elsewhere": {[]Change{{At: after(1), After: pod("b", nil)}}, nil, 0},
		"it is at another provider's of the name": {
			[]Change{{At: after(1), After: pod("a", func(p *corev1.Pod) { p.Labels[v1alpha1.ProviderLabel] = "q" })}}, nil, 0,
		},
		"its VirtualNode is gone": {
			[]Change{{At: after(1), After: pod("a", nil)}}, []Fault{{Kind: "part", Provider: "p", From: after(55), Until: after(90)}}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Record{
				Began: began, Faults: tc.faults, Times: Times{Noticed: 10 * time.Second, Skew: time.Second},
				Providers: []*Provider{{ID: "p", Slices: []Slice{{VirtualNode: "a"}}, Cluster: Cluster{ShadowPods: []Change{
					{At: after(2), After: shadow}, {At: after(60), Before: shadow, After: nil},
				}}}},
			}
			require.Len(t, r.judgeDeletions(tc.pods), tc.want)
		})
	}
	gone := shadow.DeepCopy()
	gone.DeletionTimestamp = &metav1.Time{Time: after(3)}
	for _, c := range []struct {
		before, after client.Object
		want          bool
	}{{nil, shadow, false}, {shadow, shadow, false}, {shadow, gone, true}, {gone, nil, false}} {
		require.Equal(t, c.want, deletes(&Change{Before: c.before, After: c.after}))
	}
}
