package pods

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

func claimNamed(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-" + name},
	}
}

// volumeOf is the volume of a claim at a provider; nowhere for "".
func volumeOf(claim, provider string) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + claim, Labels: map[string]string{v1alpha1.VolumeLabel: "true"}},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{
			Namespace: "ns", Name: claim, UID: types.UID(claim),
		}},
	}
	if provider != "" {
		volume.Labels[v1alpha1.ProviderLabel] = provider
		volume.Annotations = map[string]string{v1alpha1.MadeAtAnnotation: provider}
	}
	return volume
}

func using(claims ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for _, claim := range claims {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}})
		}
	}
}

// waitingPod is a pod that was assigned nowhere yet.
func waitingPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// know has the controller know a provider with one VirtualNode that offers storage. The id of the provider is the first
// letter of the name.
func (c *Controller) know(virtualNode string, change ...func(*scheduler.Provider)) {
	id := virtualNode[:1]
	p := scheduler.Provider{
		ID: id, Enabled: true, Ready: true, Namespaces: sets.New("ns"), StorageClasses: sets.New("disk"),
		Slices: []scheduler.Slice{{VirtualNode: virtualNode, Granted: resources.Amounts{corev1.ResourceCPU: 2000}}},
	}
	for _, change := range change {
		change(&p)
	}
	spec := state.ProviderSpec{Enabled: true, Draining: p.Draining, VirtualNodes: map[string]bool{virtualNode: false}}
	c.State.SetProvider(id, spec, &v1alpha1.ProviderClusterStatus{})
	c.State.ObserveProbe(id, state.Probe{Began: c.Clock.Now(), Ended: c.Clock.Now(), Answered: true})
	c.State.Schedule(p)
}

func (c *Controller) volumeAt(t *testing.T, claim string) string {
	t.Helper()
	var volume corev1.PersistentVolume
	require.NoError(t, c.Client.Get(t.Context(), client.ObjectKey{Name: "pvc-" + claim}, &volume))
	return volume.Labels[v1alpha1.ProviderLabel]
}

func TestTheFirstPodDecidesWhereAVolumeIs(t *testing.T) {
	c := newController(t, false, interceptor.Funcs{}, nil, claimNamed("data"), volumeOf("data", ""), claimNamed("logs"),
		volumeOf("logs", ""),
		waitingPod("first", using("data")), waitingPod("second", using("data", "logs")), waitingPod("third"))
	c.know("q1")
	c.know("r1", func(p *scheduler.Provider) { p.Cordoned = true })
	first, _ := c.reconciled(t, "first")
	require.Equal(t, "q1", first.Labels[v1alpha1.VirtualNodeLabel])
	require.Equal(t, "q", c.volumeAt(t, "data"))
	require.Empty(t, c.volumeAt(t, "logs"))

	// It cannot move: the second pod would have to go elsewhere.
	c.know("q1", func(p *scheduler.Provider) { p.Cordoned = true })
	c.know("r1")
	second, _ := c.reconciled(t, "second")
	require.Empty(t, second.Labels[v1alpha1.VirtualNodeLabel])
	require.Empty(t, c.volumeAt(t, "logs"))
	c.know("q1")
	second, _ = c.reconciled(t, "second")
	require.Equal(t, "q1", second.Labels[v1alpha1.VirtualNodeLabel])
	require.Equal(t, "q", c.volumeAt(t, "logs"))
}

// A volume is written before the pod: whatever fails, a pod is never where its volumes are not.
func TestAPodIsAssignedAfterItsVolumes(t *testing.T) {
	fails := true
	c := newController(t, false, interceptor.Funcs{
		Patch: func(ctx context.Context, cl client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, is := o.(*corev1.PersistentVolume); is && fails {
				return kerrors.NewInternalError(context.DeadlineExceeded)
			}
			return cl.Patch(ctx, o, p, opts...)
		},
	}, nil, claimNamed("data"), volumeOf("data", ""), waitingPod("first", using("data")))
	c.know("q1")
	request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "first"}}
	_, err := c.Reconcile(t.Context(), request)
	require.Error(t, err)
	var pod corev1.Pod
	require.NoError(t, c.Client.Get(t.Context(), request.NamespacedName, &pod))
	require.Empty(t, pod.Labels[v1alpha1.VirtualNodeLabel])
	require.False(t, c.State.Pod("first").Assumed, "its capacity is free")
	fails = false
	pod, _ = c.reconciled(t, "first")
	require.Equal(t, "q1", pod.Labels[v1alpha1.VirtualNodeLabel])
}

// The cache of volumes lags: another pod has decided about the claim.
func TestAVolumeThatWasAssignedMeanwhileIsNotMoved(t *testing.T) {
	stale := true
	c := newController(t, false, interceptor.Funcs{
		Get: func(ctx context.Context, cl client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := cl.Get(ctx, key, o, opts...)
			if volume, is := o.(*corev1.PersistentVolume); is && stale && err == nil {
				delete(volume.Labels, v1alpha1.ProviderLabel)
				volume.ResourceVersion = "1"
			}
			return err
		},
	}, nil, claimNamed("data"), volumeOf("data", "r"), waitingPod("second", using("data")))
	c.know("q1")
	second, result := c.reconciled(t, "second")
	require.Empty(t, second.Labels[v1alpha1.VirtualNodeLabel])
	require.NotZero(t, result.RequeueAfter, "it is tried again")
	require.False(t, c.State.Pod("second").Assumed)
	stale = false
	require.Equal(t, "r", c.volumeAt(t, "data"))
}

func TestAPodWaitsForItsVolume(t *testing.T) {
	otherUID := volumeOf("data", "q")
	otherUID.Spec.ClaimRef.UID = "earlier"
	local := volumeOf("data", "")
	delete(local.Labels, v1alpha1.VolumeLabel)
	unbound := claimNamed("data")
	unbound.Spec.VolumeName = ""
	for name, tc := range map[string]struct {
		objects []client.Object
		why     string
	}{
		"no claim":        {nil, "there is no PersistentVolumeClaim data"},
		"unbound":         {[]client.Object{unbound}, "PersistentVolumeClaim data is not bound"},
		"no volume":       {[]client.Object{claimNamed("data")}, "bound to a volume of this cluster"},
		"a volume here":   {[]client.Object{claimNamed("data"), local}, "bound to a volume of this cluster"},
		"another claim's": {[]client.Object{claimNamed("data"), otherUID}, "bound to a volume of this cluster"},
		"two providers": {
			[]client.Object{claimNamed("data"), volumeOf("data", "q"), claimNamed("b"), volumeOf("b", "r")},
			"are at different providers, r and q",
		},
		"another provider": {[]client.Object{claimNamed("data"), volumeOf("data", "r")}, "volume data is at provider r"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := waitingPod("pod", using("data"))
			if name == "two providers" {
				using("b")(pod)
			}
			c := newController(t, false, interceptor.Funcs{}, nil, append(tc.objects, pod)...)
			c.know("q1")
			got, _ := c.reconciled(t, "pod")
			require.Empty(t, got.Labels[v1alpha1.VirtualNodeLabel])
			_, err := c.reports.Write(t.Context(), types.NamespacedName{Namespace: "ns", Name: "pod"})
			require.NoError(t, err)
			require.NoError(t, c.Client.Get(t.Context(), client.ObjectKeyFromObject(&got), &got))
			require.Len(t, got.Status.Conditions, 1)
			require.Contains(t, got.Status.Conditions[0].Message, tc.why)
		})
	}
}

// The events of claims and volumes requeue the pods that use them.
func TestChangesOfVolumesRequeueTheirPods(t *testing.T) {
	ephemeral := waitingPod("b", func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	})
	c := newController(t, false, interceptor.Funcs{}, nil, waitingPod("a", using("data")), ephemeral, waitingPod("c"))
	named := func(name string) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}}}
	}
	require.Equal(t, named("a"), c.podsOfClaim(t.Context(), claimNamed("data")))
	require.Equal(t, named("b"), c.podsOfVolume(t.Context(), volumeOf("b-data", "")))
	require.Empty(t, c.podsOfVolume(t.Context(), volumeOf("other", "")))
	require.Empty(t, c.podsOfVolume(t.Context(), &corev1.PersistentVolume{}))
}

// A pod with volumes stays with them when its provider is drained, unless its policy recreates them.
func TestADrainLeavesPodsWithVolumes(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   v1alpha1.VolumesMode
		claims []client.Object
		leaves bool
	}{
		"kept":            {v1alpha1.VolumesKeep, []client.Object{claimNamed("data"), volumeOf("data", "q")}, false},
		"recreated":       {v1alpha1.VolumesRecreate, []client.Object{claimNamed("data"), volumeOf("data", "q")}, true},
		"claim not there": {v1alpha1.VolumesRecreate, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.PlacementPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: "policy"},
				Spec:       v1alpha1.PlacementPolicySpec{Volumes: tc.mode},
			}
			pod := assignedPod(corev1.PodRunning, using("data"))
			c := newController(t, false, interceptor.Funcs{}, nil, append(tc.claims, pod, policy, virtualNodeOf("q", "q1"))...)
			c.know("r1")
			c.know("q1", func(p *scheduler.Provider) { p.Draining = true })
			got, result := c.reconciled(t, "pod")
			require.Equal(t, "q1", got.Labels[v1alpha1.VirtualNodeLabel])
			known, _ := c.State.Provider("q")
			if tc.leaves {
				require.Zero(t, known.Staying)
				require.Equal(t, leavingRecheck, result.RequeueAfter, "its provider is asked about it")
				return
			}
			require.Equal(t, 1, known.Staying.Pods)
			require.Equal(t, "ns/pod", known.Staying.Example)
			require.Contains(t, <-c.Events.(*record.FakeRecorder).Events, "MoveWaits")
		})
	}
}

// Two pods with a shared claim are decided at once: the one that loses follows the other, with its own claim, which was
// written for another provider already.
func TestAPodThatLosesAConflictFollowsTheOther(t *testing.T) {
	other := volumeOf("shared", "r")
	stale := true
	c := newController(t, false, interceptor.Funcs{
		Get: func(ctx context.Context, cl client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := cl.Get(ctx, key, o, opts...)
			if volume, is := o.(*corev1.PersistentVolume); is && stale && err == nil && key.Name == other.Name {
				volume.ResourceVersion, volume.Annotations = "1", nil
				delete(volume.Labels, v1alpha1.ProviderLabel)
			}
			return err
		},
	}, nil, claimNamed("own"), volumeOf("own", ""), claimNamed("shared"), other, waitingPod("pod", using("own", "shared")))
	c.know("q1")
	pod, result := c.reconciled(t, "pod")
	require.Empty(t, pod.Labels[v1alpha1.VirtualNodeLabel])
	require.NotZero(t, result.RequeueAfter)
	require.Equal(t, "q", c.volumeAt(t, "own"))
	stale = false
	c.know("r1")
	pod, _ = c.reconciled(t, "pod")
	require.Equal(t, "r1", pod.Labels[v1alpha1.VirtualNodeLabel])
	require.Equal(t, "r", c.volumeAt(t, "own"))
}

// The cache shows a volume, which was not made yet, at a provider that it has left.
func TestAVolumeThatAnotherPodTookIsNotAssumed(t *testing.T) {
	unmade := volumeOf("data", "r")
	unmade.Annotations = nil
	c := newController(t, false, interceptor.Funcs{}, nil, claimNamed("data"), unmade, waitingPod("pod", using("data")),
		waitingPod("other", using("data"), func(pod *corev1.Pod) {
			pod.Labels = map[string]string{v1alpha1.ProviderLabel: "q", v1alpha1.VirtualNodeLabel: "q1"}
		}))
	c.know("q1")
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, cl client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := cl.Get(ctx, key, o, opts...)
			if volume, is := o.(*corev1.PersistentVolume); is && err == nil {
				volume.ResourceVersion, volume.Labels[v1alpha1.ProviderLabel] = "1", "q"
			}
			return err
		},
	})
	c.Policies.Client = c.Client
	pod, result := c.reconciled(t, "pod")
	require.Empty(t, pod.Labels[v1alpha1.VirtualNodeLabel])
	require.NotZero(t, result.RequeueAfter)
}

// A broker that was killed between two writes leaves such a volume. It has no data, and nothing waits for it.
func TestAVolumeThatWasNotMadeFollowsTheOthers(t *testing.T) {
	unmade := volumeOf("own", "r")
	unmade.Annotations = nil
	for name, tc := range map[string]struct {
		other *corev1.Pod
		at    string
	}{
		"used by no other pod": {waitingPod("other"), "q"},
		"used by a pod that is at its provider": {waitingPod("other", using("own"), func(pod *corev1.Pod) {
			pod.Labels = map[string]string{v1alpha1.ProviderLabel: "r", v1alpha1.VirtualNodeLabel: "r1"}
		}), "r"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t, false, interceptor.Funcs{}, nil, claimNamed("own"), unmade.DeepCopy(), claimNamed("shared"),
				volumeOf("shared", "q"),
				waitingPod("pod", using("own", "shared")), tc.other)
			c.know("q1")
			c.know("r1")
			pod, _ := c.reconciled(t, "pod")
			require.Equal(t, tc.at, c.volumeAt(t, "own"))
			require.Equal(t, tc.at == "q", pod.Labels[v1alpha1.ProviderLabel] == "q")
		})
	}
}

// Volumes are recreated only when their provider cannot run the pod any more, and no other pod uses them.
func TestWhenVolumesAreRecreated(t *testing.T) {
	policy := &v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "policy"},
		Spec:       v1alpha1.PlacementPolicySpec{Volumes: v1alpha1.VolumesRecreate},
	}
	full := func(p *scheduler.Provider) { p.Slices[0].Granted = resources.Amounts{} }
	for name, tc := range map[string]struct {
		change    func(*scheduler.Provider)
		draining  bool
		gone      bool
		unknown   bool
		other     *corev1.Pod
		recreated bool
	}{
		"cordoned":                     {change: func(p *scheduler.Provider) { p.Cordoned = true }},
		"full":                         {change: full},
		"not ready":                    {change: func(p *scheduler.Provider) { p.Ready = false }},
		"drained":                      {draining: true, recreated: true},
		"gone":                         {gone: true, unknown: true, recreated: true},
		"not known yet":                {unknown: true},
		"drained, used by another pod": {draining: true, other: waitingPod("other", using("data"))},
		"drained, used by an ended pod": {draining: true, recreated: true, other: waitingPod("other", using("data"),
			func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{
				claimNamed("data"), volumeOf("data", "r"), waitingPod("pod", using("data"), asks("1")),
				policy.DeepCopy(),
			}
			if tc.other != nil {
				objects = append(objects, tc.other)
			}
			if !tc.gone {
				objects = append(objects, virtualNodeOf("r", "r1"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
					Name: "liqo-tenant-r", Labels: map[string]string{"liqo.io/remote-cluster-id": "r", "liqo.io/tenant-namespace": "true"},
				}})
			}
			c := newController(t, false, interceptor.Funcs{}, nil, objects...)
			c.know("q1")
			if !tc.unknown {
				c.know("r1", func(p *scheduler.Provider) {
					p.Draining = tc.draining
					if tc.change != nil {
						tc.change(p)
					}
				})
			}
			pod, _ := c.reconciled(t, "pod")
			want := "r"
			if tc.recreated {
				want = "q"
			}
			require.Equal(t, want, c.volumeAt(t, "data"))
			require.Equal(t, tc.recreated, pod.Labels[v1alpha1.ProviderLabel] == "q")
		})
	}
}

func asks(cpu string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Containers = cpus(cpu) }
}

// changedVolumes is an API server that has other versions of PersistentVolumes than the cache shows.
type changedVolumes struct{ client.Reader }

func (c changedVolumes) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := c.Reader.Get(ctx, key, o, opts...)
	if _, is := o.(*corev1.PersistentVolume); is {
		o.SetResourceVersion("another")
	}
	return err
}

// The cache does not show yet that the provider, which is drained, has made the volume of a pod.
func TestAPodLeavesOnlyIfNoVolumeWasMadeMeanwhile(t *testing.T) {
	volume := volumeOf("data", "q")
	delete(volume.Annotations, v1alpha1.MadeAtAnnotation)
	pod := assignedPod(corev1.PodRunning, using("data"))
	c := newController(t, false, interceptor.Funcs{}, nil, claimNamed("data"), volume, pod, virtualNodeOf("q", "q1"))
	c.know("r1")
	c.know("q1", func(p *scheduler.Provider) { p.Draining = true })
	c.Live = changedVolumes{c.Client}
	_, result := c.reconciled(t, "pod")
	require.Equal(t, requeue.FirstConflict, result.RequeueAfter, "it is tried again")

	c.Live = c.Client
	_, result = c.reconciled(t, "pod")
	require.Equal(t, leavingRecheck, result.RequeueAfter, "its provider is asked about it")
}
