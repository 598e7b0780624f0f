package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func TestAVolumeIsUsedAtOneProvider(t *testing.T) {
	user := func(name, provider string) *corev1.Pod {
		p := pod("ns", name, corev1.PodRunning)
		p.UID, p.Labels = types.UID(name), map[string]string{ClaimLabel: "data"}
		if provider != "" {
			p.Labels[v1alpha1.ProviderLabel], p.Labels[v1alpha1.VirtualNodeLabel] = provider, provider
		}
		return p
	}
	there := func(name string) Change {
		p := pod("ns", name, corev1.PodRunning)
		p.Annotations = map[string]string{PodUID: name}
		return Change{At: time.Unix(1, 0), After: p}
	}
	r := &Record{
		Home:      Cluster{Pods: []Change{{After: user("one", "p0")}, {After: user("two", "p0")}}},
		Providers: []*Provider{{ID: "p0", Cluster: Cluster{Pods: []Change{there("one"), there("two")}}}, {ID: "p1"}},
	}
	assert.Empty(t, r.judgeVolumes())
	r.Providers[1].ShadowPods = []Change{there("other")}
	assert.Empty(t, r.judgeVolumes(), "it uses no claim")
	r.Providers[1].ShadowPods = []Change{there("two")}
	assert.Len(t, r.judgeVolumes(), 1)

	r.Providers[1].ShadowPods = nil
	r.Providers[0].Slices = []Slice{{VirtualNode: "p0"}}
	r.Home.Pods = append(r.Home.Pods, Change{At: time.Unix(2, 0), Before: user("one", "p0"), After: user("one", "")})
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc", Labels: map[string]string{v1alpha1.ProviderLabel: "p0"}},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Name: "data"}},
	}
	r.Home.Volumes = []Change{{After: volume}}
	assert.Empty(t, r.judgeVolumes(), "the volume was not made")
	volume.Annotations = map[string]string{v1alpha1.MadeAtAnnotation: "p0"}
	assert.Len(t, r.judgeVolumes(), 1, "it leaves its volume")
	r.Faults = []Fault{{Kind: "part", Provider: "p0", VirtualNode: "p0", From: time.Unix(1, 0), Until: time.Unix(3, 0)}}
	assert.Empty(t, r.judgeVolumes(), "its VirtualNode is deleted")

	assert.Equal(t, "p0", r.volumeAt(user("one", "")))
	assert.Empty(t, r.volumeAt(pod("ns", "other", "")))
}
