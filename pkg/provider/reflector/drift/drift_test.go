package drift

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	offloadingv1beta1listers "github.com/liqotech/liqo/pkg/client/listers/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/pkg/provider/podspec"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/reflector/transform"
)

// below is a fake of Liqo's reflector, which the tested one wraps.
type below struct {
	manager.NamespacedReflector
	err error
}

func (b below) Handle(context.Context, string) error { return b.err }

func forwardedPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "1"},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Image: "init:1"}},
			Containers: []corev1.Container{
				{Name: "c", Image: "c:1", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
				}},
				{Name: "d", Image: "d:1"},
			},
			ActiveDeadlineSeconds: ptr.To(int64(100)),
		},
	}
}

func TestWhatIsNotForwarded(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.PodSpec)
		want   []string
	}{
		"nothing": {func(*corev1.PodSpec) {}, nil},
		"another form of a number": {
			func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1000m") }, nil,
		},
		"an image": {func(s *corev1.PodSpec) { s.Containers[1].Image = "d:2" }, []string{`image of container "d"`}},
		"an init container's": {
			func(s *corev1.PodSpec) { s.InitContainers[0].Image = "init:2" }, []string{`image of init container "init"`},
		},
		"a resize": {
			func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2") },
			[]string{`resources of container "c"`},
		},
		"kubectl debug": {
			func(s *corev1.PodSpec) {
				s.EphemeralContainers = []corev1.EphemeralContainer{{
					EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger"},
				}}
			}, []string{`ephemeral container "debugger"`},
		},
		"a deadline": {func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = ptr.To(int64(5)) }, []string{"activeDeadlineSeconds"}},
		"a toleration, which Liqo filters": {
			func(s *corev1.PodSpec) { s.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := forwardedPod()
			shadow := forge.RemoteShadowPod(pod, nil, "remote", &forge.ForgingOpts{})
			tc.change(&pod.Spec)
			require.Equal(t, tc.want, notForwarded(&pod.Spec, &shadow.Spec.Pod))
		})
	}
}

func TestChangesOfAPodAreReportedOnce(t *testing.T) {
	local := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	remote := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	events := record.NewFakeRecorder(10)
	failed := errors.New("of Liqo")
	reflector := &pods{
		NamespacedReflector: below{err: failed}, local: corev1listers.NewPodLister(local).Pods("ns"),
		events: events, reported: map[report]string{},
		forwarded: offloadingv1beta1listers.NewShadowPodLister(remote).ShadowPods("remote"),
	}
	handled := func(want ...string) {
		t.Helper()
		require.ErrorIs(t, reflector.Handle(t.Context(), "web"), failed)
		for _, message := range want {
			require.NotEmpty(t, events.Events)
			require.Contains(t, <-events.Events, message)
		}
		require.Empty(t, events.Events)
	}

	pod := forwardedPod()
	shadow := forge.RemoteShadowPod(pod, nil, "remote", &forge.ForgingOpts{})
	require.NoError(t, local.Add(pod))
	handled() // The pod is not forwarded yet.
	require.NoError(t, remote.Add(shadow))
	handled()

	changed := pod.DeepCopy()
	changed.Spec.Containers[0].Image = "c:2"
	require.NoError(t, local.Update(changed))
	handled(`Warning ChangeNotForwarded The remote pod keeps its original spec; changes not forwarded: image of container "c". Delete`)
	handled()
	again := changed.DeepCopy()
	again.Spec.Containers[1].Image = "d:2"
	require.NoError(t, local.Update(again))
	handled(`image of container "c", image of container "d"`)
	require.NoError(t, local.Update(pod))
	handled() // The pod is unchanged.
	require.NoError(t, local.Update(changed))
	handled(`image of container "c"`)

	// The ShadowPod of an earlier pod of that name is deleted.
	earlier := shadow.DeepCopy()
	transform.HidePodUID(earlier, "0")
	require.NoError(t, remote.Update(earlier))
	handled()
	require.Empty(t, reflector.reported)
	require.NoError(t, remote.Update(shadow))
	handled(`image of container "c"`)

	leaving := changed.DeepCopy()
	leaving.DeletionTimestamp = &metav1.Time{}
	require.NoError(t, local.Update(leaving))
	handled()
	require.NoError(t, local.Delete(leaving))
	handled()
	require.Empty(t, reflector.reported, "nothing is kept of pods that are gone")
}

func TestFieldsThatAreNeverForwardedAreReportedOnce(t *testing.T) {
	local := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	remote := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	events := record.NewFakeRecorder(10)
	reflector := &pods{
		NamespacedReflector: below{}, local: corev1listers.NewPodLister(local).Pods("ns"), events: events, reported: map[report]string{},
		forwarded: offloadingv1beta1listers.NewShadowPodLister(remote).ShadowPods("remote"),
	}
	pod := forwardedPod()
	pod.Spec.HostNetwork = true
	pod.Spec.HostUsers = ptr.To(false)
	pod.Spec.RuntimeClassName = ptr.To("kata")
	pod.Spec.NodeSelector = map[string]string{"liqo.io/type": "virtual-node"} // The node selector selected the virtual node.
	pod.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	shadow := forge.RemoteShadowPod(pod, nil, "remote", &forge.ForgingOpts{})
	podspec.Complete(&shadow.Spec.Pod, &pod.Spec)
	require.NoError(t, local.Add(pod))
	require.NoError(t, remote.Add(shadow))
	for range 2 {
		require.NoError(t, reflector.Handle(t.Context(), "web"))
	}
	require.Equal(t, "Warning NotForwarded The pod runs in the remote cluster without these fields of its spec: "+
		"hostNetwork, resourceClaims", <-events.Events)
	require.Empty(t, events.Events)

	older := shadow.DeepCopy() // From a virtual kubelet or a cluster that does not know the field.
	older.Spec.Pod.Resources = nil
	require.NoError(t, remote.Update(older))
	require.NoError(t, reflector.Handle(t.Context(), "web"))
	require.Contains(t, <-events.Events, "hostNetwork, resources, resourceClaims")
}

func TestTheEventNamesFiveChanges(t *testing.T) {
	var changes []string
	for i := range 8 {
		changes = append(changes, fmt.Sprintf("change-%d", i))
	}
	require.Contains(t, messageOf(changes), "not forwarded: change-0, change-1, change-2, change-3, change-4, 3 more.")
	require.NotContains(t, messageOf(changes[:5]), "more")
}

func TestAnImmutableCopyIsReplaced(t *testing.T) {
	invalid := kerrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "o", nil)
	meta := func(namespace string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: "o", UID: "1", Labels: labels}
	}
	reflected := forge.ReflectionLabels()
	configMap := func(m metav1.ObjectMeta, immutable bool, data string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: m, Immutable: &immutable, Data: map[string]string{"k": data}}
	}
	secret := func(m metav1.ObjectMeta, immutable bool, data string, kind corev1.SecretType) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: m, Immutable: &immutable, Data: map[string][]byte{"k": []byte(data)}, Type: kind}
	}
	configMaps := ConfigMaps
	for name, tc := range map[string]struct {
		of              func(generic.NamespacedReflectorFactoryFunc) generic.NamespacedReflectorFactoryFunc
		original, found runtime.Object
		err             error
		deletes         bool
	}{
		"other data": {
			of: configMaps, original: configMap(meta("ns", nil), true, "2"),
			found: configMap(meta("remote", reflected), true, "1"), err: invalid, deletes: true,
		},
		"now mutable": {
			of: configMaps, original: configMap(meta("ns", nil), false, "1"),
			found: configMap(meta("remote", reflected), true, "1"), err: invalid, deletes: true,
		},
		"the same data": {
			of: configMaps, original: configMap(meta("ns", nil), true, "1"),
			found: configMap(meta("remote", reflected), true, "1"), err: invalid,
		},
		"mutable": {
			of: configMaps, original: configMap(meta("ns", nil), true, "2"),
			found: configMap(meta("remote", reflected), false, "1"), err: invalid,
		},
		"of another owner": {
			of: configMaps, original: configMap(meta("ns", nil), true, "2"), found: configMap(meta("remote", nil), true, "1"), err: invalid,
		},
		"another error": {
			of: configMaps, original: configMap(meta("ns", nil), true, "2"),
			found: configMap(meta("remote", reflected), true, "1"), err: errors.New("away"),
		},
		"no error": {
			of: configMaps, original: configMap(meta("ns", nil), true, "2"), found: configMap(meta("remote", reflected), true, "1"),
		},
		"no original": {of: configMaps, found: configMap(meta("remote", reflected), true, "1"), err: invalid},
		"no copy":     {of: configMaps, original: configMap(meta("ns", nil), true, "2"), err: invalid},
		"other secret data": {
			of: Secrets, original: secret(meta("ns", nil), true, "2", corev1.SecretTypeOpaque),
			found: secret(meta("remote", reflected), true, "1", corev1.SecretTypeOpaque), err: invalid, deletes: true,
		},
		"another type": {
			of: Secrets, original: secret(meta("ns", nil), false, "1", "example.com/t"),
			found: secret(meta("remote", reflected), false, "1", corev1.SecretTypeOpaque), err: invalid, deletes: true,
		},
		"a token's type": {
			of: Secrets, original: secret(meta("ns", nil), false, "1", corev1.SecretTypeServiceAccountToken),
			found: secret(meta("remote", reflected), false, "1", corev1.SecretTypeOpaque), err: invalid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := func(o runtime.Object) []runtime.Object {
				if o == nil {
					return nil
				}
				return []runtime.Object{o}
			}
			local := informers.NewSharedInformerFactory(fake.NewClientset(objects(tc.original)...), 0)
			remote := fake.NewClientset(objects(tc.found)...)
			opts := options.NewNamespaced().WithLocal("ns", nil, local).WithRemote("remote", remote, nil)
			opts.ForgingOpts = &forge.ForgingOpts{}
			reflector := tc.of(func(*options.NamespacedOpts) manager.NamespacedReflector { return below{err: tc.err} })(opts)
			local.Start(t.Context().Done())
			local.WaitForCacheSync(t.Context().Done())
			t.Cleanup(local.Shutdown)

			if tc.err == nil {
				require.NoError(t, reflector.Handle(t.Context(), "o"))
			} else {
				require.Equal(t, tc.err, reflector.Handle(t.Context(), "o"))
			}
			deleted := 0
			for _, action := range remote.Actions() {
				if action.GetVerb() == "delete" {
					deleted++
				}
			}
			require.Equal(t, tc.deletes, deleted == 1)
		})
	}
}
