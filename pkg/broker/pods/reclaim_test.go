package pods

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// ofGrant are replicas of half a CPU at q1 that count in the grant of consumer c1, the last one the youngest.
func ofGrant(app string, count int) []client.Object {
	i := 0
	return replicas(app, count, func(pod *corev1.Pod) {
		counted := newPodOf("a", pod.Name, "500m")
		pod.OwnerReferences, pod.Spec = counted.OwnerReferences, counted.Spec
		pod.Labels["liqo.io/creator-user"] = counted.Labels["liqo.io/creator-user"]
		delete(pod.Labels, "offloading.liqo.io/nodename")
		pod.CreationTimestamp = metav1.NewTime(noon.Add(time.Duration(i)*time.Minute - time.Hour))
		i++
	})
}

// bounded has the pods at q1, which is not drained, and no other provider takes them.
func bounded(t *testing.T, milli int64, objects ...client.Object) *drainage {
	t.Helper()
	d := drain(t, objects...)
	d.bound(milli)
	return d
}

// bound has a new leader know that.
func (d *drainage) bound(milli int64) {
	d.State.SetProvider("q", state.ProviderSpec{
		Enabled: true, VirtualNodes: map[string]bool{"q1": false}, RemoteNamespaces: map[string]string{"ns": "ns-r"},
	}, &v1alpha1.ProviderClusterStatus{})
	d.State.Schedule(scheduler.Provider{ID: "z"})
	d.State.Schedule(scheduler.Provider{
		ID: "q", Enabled: true, Ready: true, Namespaces: sets.New("ns"),
		Slices: []scheduler.Slice{{VirtualNode: "q1", Granted: resources.Amounts{corev1.ResourceCPU: 1 << 40}}},
	})
	d.granted(milli)
}

// reclaimed are so many thousandths of a CPU that the pods use beyond the grant.
func reclaimed(milli int64) map[scheduler.Account]resources.Amounts {
	creator := newPodOf("a", "", "0").Labels["liqo.io/creator-user"]
	return map[scheduler.Account]resources.Amounts{{Consumer: "c1", Creator: creator}: {corev1.ResourceCPU: milli}}
}

// granted grants consumer c1 so many thousandths of a CPU.
func (d *drainage) granted(milli int64) {
	of := resources.Amounts{corev1.ResourceCPU: milli}
	creator := newPodOf("a", "", "0").Labels["liqo.io/creator-user"]
	d.State.SetGrant("c1", &scheduler.Grant{Sum: of, ByCreator: map[string]resources.Amounts{creator: of}})
}

// seconds lets time pass; the broker tries waiting pods, and pods that have to leave, each second.
func (d *drainage) seconds(t *testing.T, n int) {
	t.Helper()
	for range n {
		names, _ := d.State.Wake(true)
		for _, name := range names {
			d.Queue.Add(name)
		}
		d.second(t)
	}
}

// names returns the pods at q1.
func (d *drainage) names(t *testing.T) (names []string) {
	t.Helper()
	for _, pod := range d.pods(t) {
		if pod.Labels[v1alpha1.VirtualNodeLabel] == "q1" {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

func TestPodsBeyondTheGrantLeaveWhenOthersHaveARightToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withClaim := ofGrant("db", 1)
		db := withClaim[0].(*corev1.Pod)
		db.CreationTimestamp = metav1.NewTime(noon)
		db.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
		d := bounded(t, 1500, append(ofGrant("web", 4), withClaim...)...)
		d.seconds(t, 5)
		require.Len(t, d.names(t), 5, "more than its grant, which no other consumer has a right to")

		of := reclaimed(800)
		d.State.SetReclaimed(of)
		d.seconds(t, int(reclaimAfter/time.Second)-5)
		require.Len(t, d.names(t), 5, "not yet")
		d.State.SetReclaimed(of)
		leaving := 0
		for range 60 {
			d.seconds(t, 1)
			left := 0
			for _, pod := range d.pods(t) {
				if pod.Annotations[v1alpha1.MovingFromAnnotation] != "" {
					left++
				}
			}
			leaving = max(leaving, left)
		}
		require.Equal(t, []string{"db-0", "web-0", "web-1"}, d.names(t), "the youngest have left, but for the one with a volume")
		require.Equal(t, 1, leaving, "one at a time")
		pod, _ := d.reconciled(t, "web-3")
		require.NotEmpty(t, pod.Annotations[v1alpha1.ReclaimedAnnotation])
		require.Equal(t, v1alpha1.ReasonBeyondGrant, d.reported(t, "web-3").Reason)
		require.Contains(t, fmt.Sprint(d.told()), "its consumer uses more than its grant, and other consumers have a right to that")

		// The next leader knows why they wait.
		d.restart(t)
		d.bound(1500)
		d.seconds(t, 60)
		require.Len(t, d.names(t), 3)

		d.granted(2500)
		d.seconds(t, 60)
		require.Len(t, d.names(t), 5)
		pod, _ = d.reconciled(t, "web-3")
		require.Empty(t, pod.Annotations[v1alpha1.ReclaimedAnnotation])
	})
}

// The others no longer ask for it.
func TestPodsStayIfOthersNoLongerLackTheirResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := bounded(t, 500, ofGrant("web", 4)...)
		d.State.SetReclaimed(reclaimed(1500))
		d.seconds(t, int(reclaimAfter/time.Second)-1)
		d.State.SetReclaimed(nil)
		d.State.SetReclaimed(reclaimed(1500))
		d.seconds(t, int(reclaimAfter/time.Second)-5)
		require.Len(t, d.names(t), 4)
		for began := time.Now(); len(d.names(t)) > 3; d.seconds(t, 1) {
			require.Less(t, time.Since(began), time.Minute)
		}
		d.State.SetReclaimed(nil)
		d.seconds(t, 120)
		require.Len(t, d.names(t), 3, "those that had not left")
	})
}
