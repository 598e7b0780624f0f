package claims

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func localClaim(uid string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "data", UID: types.UID(uid), Labels: map[string]string{"app": "db"},
			Annotations: map[string]string{"volume.kubernetes.io/selected-node": "broker"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			VolumeName: "pvc-" + uid, StorageClassName: ptr.To("liqo"),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
			Resources:   corev1.VolumeResourceRequirements{Requests: gib("1Gi")},
		},
	}
}

func gib(amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(amount)}
}

// volume is the volume of the claim with that UID, at a provider.
func volume(uid, provider string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-" + uid, UID: types.UID("of-" + uid), Labels: map[string]string{
				v1alpha1.VolumeLabel:   "true",
				v1alpha1.ProviderLabel: provider,
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: gib("1Gi"), ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: "data", UID: types.UID(uid)},
		},
	}
}

// assigned is a volume that was assigned to its provider later.
func assigned(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	v.Annotations = map[string]string{v1alpha1.AssignedAtAnnotation: "later"}
	return v
}

func made(v *corev1.PersistentVolume, at string) *corev1.PersistentVolume {
	v.Annotations = map[string]string{v1alpha1.MadeAtAnnotation: at}
	return v
}

// remoteClaim is a claim at the provider, made from the volume of the one with that UID, or by another client for "".
func remoteClaim(uid string) *corev1.PersistentVolumeClaim {
	origin := ""
	if uid != "" {
		origin = "pvc-" + uid + "/"
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns-there", Name: "data", UID: "there", Labels: forge.ReflectionLabels(),
			Annotations: map[string]string{v1alpha1.ClaimOriginAnnotation: origin},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("disk"),
			Resources:        corev1.VolumeResourceRequirements{Requests: gib("1Gi")},
		},
	}
}

// world is the reflector of namespace "ns" to "ns-there" at provider p, with caches of these objects. hidden objects are
// in the API server here, but not in the cache yet.
type world struct {
	manager.NamespacedReflector
	here, there *fake.Clientset
	events      *record.FakeRecorder
}

func newWorld(t *testing.T, here, hidden, there []runtime.Object) *world {
	t.Helper()
	forge.Init("broker", "broker-tenant", "broker", "10.0.0.1")
	w := &world{here: fake.NewClientset(append(hidden, here...)...), there: fake.NewClientset(there...), events: record.NewFakeRecorder(10)}
	factory := func(c kubernetes.Interface) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactory(c, 0)
	}
	local, remote := factory(fake.NewClientset(here...)), factory(w.there)
	w.NamespacedReflector = Namespaced("p", "disk")(&options.NamespacedOpts{
		LocalNamespace: "ns", RemoteNamespace: "ns-there", LocalClient: w.here, RemoteClient: w.there, LocalFactory: local,
		RemoteFactory:    remote,
		EventBroadcaster: broadcaster{recorder: w.events}, Ready: func() bool { return true }, ForgingOpts: &forge.ForgingOpts{},
		HandlerFactory: func(options.Keyer, ...options.EventFilter) cache.ResourceEventHandler {
			return cache.ResourceEventHandlerFuncs{}
		},
	})
	for _, f := range []informers.SharedInformerFactory{local, remote} {
		f.Start(t.Context().Done())
		f.WaitForCacheSync(t.Context().Done())
	}
	return w
}

func (w *world) claim(t *testing.T) *corev1.PersistentVolumeClaim {
	t.Helper()
	got, err := w.there.CoreV1().PersistentVolumeClaims("ns-there").Get(t.Context(), "data", metav1.GetOptions{})
	if kerrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return got
}

type broadcaster struct {
	record.EventBroadcaster
	recorder *record.FakeRecorder
}

func (b broadcaster) NewRecorder(*runtime.Scheme, corev1.EventSource) record.EventRecorderLogger {
	return b.recorder
}

func TestAClaimIsMadeWhereItsVolumeIs(t *testing.T) {
	for name, tc := range map[string]struct {
		here, hidden, there []runtime.Object
		is                  bool
		event               string
	}{
		"at this provider": {
			here: []runtime.Object{localClaim("1"), volume("1", "p")}, is: true,
			event: "SuccessfulReflection",
		},
		"at another":                     {here: []runtime.Object{localClaim("1"), volume("1", "q")}},
		"at none yet":                    {here: []runtime.Object{localClaim("1"), volume("1", "")}},
		"not bound to it yet":            {here: []runtime.Object{localClaim("1"), volume("2", "p")}},
		"made before, and deleted there": {here: []runtime.Object{localClaim("1"), made(volume("1", "p"), "p")}, event: "VolumeLost"},
		"made before at another": {
			here: []runtime.Object{localClaim("1"), made(volume("1", "p"), "q")}, is: true,
			event: "SuccessfulReflection",
		},
		"a claim of somebody else's there": {
			here:  []runtime.Object{localClaim("1"), volume("1", "p")},
			there: []runtime.Object{func() runtime.Object { c := remoteClaim(""); c.Labels = nil; return c }()},
			is:    true, event: "already exists",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.here, tc.hidden, tc.there)
			require.NoError(t, w.Handle(t.Context(), "data"))
			got := w.claim(t)
			require.Equal(t, tc.is, got != nil)
			if tc.event == "" {
				require.Empty(t, w.events.Events)
			} else {
				require.Contains(t, <-w.events.Events, tc.event)
			}
			if tc.event != "SuccessfulReflection" {
				return
			}
			require.Equal(t, map[string]string{v1alpha1.ClaimOriginAnnotation: "pvc-1/", consts.RemotePVCStorageClassAnnotKey: ""},
				got.Annotations,
				"those of controllers here are omitted")
			require.Equal(t, "db", got.Labels["app"])
			require.True(t, forge.IsReflected(got))
			require.Equal(t, "disk", *got.Spec.StorageClassName)
			require.Equal(t, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, got.Spec.AccessModes)
			of, err := w.here.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-1", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, "p", of.Annotations[v1alpha1.MadeAtAnnotation])
		})
	}
}

// The broker recreates the volume at another provider, and the cache does not show it yet.
func TestNoClaimIsMadeOfAnOldCache(t *testing.T) {
	w := newWorld(t, []runtime.Object{localClaim("1"), volume("1", "p")}, nil, nil)
	_, err := w.here.CoreV1().PersistentVolumes().Update(t.Context(), volume("1", "q"), metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, w.Handle(t.Context(), "data"))
	require.Nil(t, w.claim(t))
}

func TestAClaimIsDeletedWithItsVolume(t *testing.T) {
	for name, tc := range map[string]struct {
		here, hidden []runtime.Object
		is           bool
		event        string
	}{
		"the claim is there":                        {here: []runtime.Object{localClaim("1"), made(volume("1", "p"), "p")}, is: true},
		"the claim is gone, its volume kept":        {here: []runtime.Object{volume("1", "p")}, is: true},
		"both are gone":                             {},
		"the cache lacks the volume":                {hidden: []runtime.Object{volume("1", "p")}, is: true},
		"back from another, where it was recreated": {here: []runtime.Object{localClaim("1"), assigned(volume("1", "p"))}},
		"recreated at another":                      {here: []runtime.Object{localClaim("1"), volume("1", "q")}},
		"an administrator took it away":             {here: []runtime.Object{localClaim("1"), volume("1", "")}, is: true},
		"a later claim of the name":                 {here: []runtime.Object{localClaim("2"), volume("2", "p")}},
		"a later claim, the earlier volume is kept": {
			here: []runtime.Object{localClaim("2"), volume("2", "p"), volume("1", "p")}, is: true,
			event: "is kept at provider p by PersistentVolume pvc-1",
		},
		"a later claim at another provider": {here: []runtime.Object{localClaim("2"), volume("2", "q")}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.here, tc.hidden, []runtime.Object{remoteClaim("1")})
			require.NoError(t, w.Handle(t.Context(), "data"))
			got := w.claim(t)
			require.Equal(t, tc.is, got != nil)
			if got != nil {
				require.Equal(t, "pvc-1/", got.Annotations[v1alpha1.ClaimOriginAnnotation], "its data are not another claim's")
			}
			if tc.event != "" {
				require.Contains(t, <-w.events.Events, tc.event)
			}
		})
	}
}

// An API server that does not answer is no reason to delete data.
func TestAClaimIsNotDeletedUnlessItIsCertain(t *testing.T) {
	w := newWorld(t, nil, nil, []runtime.Object{remoteClaim("1")})
	w.here.PrependReactor("get", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, kerrors.NewInternalError(context.DeadlineExceeded)
	})
	require.Error(t, w.Handle(t.Context(), "data"))
	require.NotNil(t, w.claim(t))
}

// A claim that is there keeps the fields that cannot change, whatever its user writes later.
func TestAClaimKeepsItsClass(t *testing.T) {
	changed := localClaim("1")
	changed.Annotations[consts.RemotePVCStorageClassAnnotKey], changed.Annotations[consts.RemotePVCAccessModeAnnotKey] = "ssd",
		"ReadWriteMany"
	there := remoteClaim("1")
	there.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	w := newWorld(t, []runtime.Object{changed, volume("1", "p")}, nil, []runtime.Object{there})
	require.NoError(t, w.Handle(t.Context(), "data"))
	require.Equal(t, "disk", *w.claim(t).Spec.StorageClassName)
	require.Equal(t, there.Spec.AccessModes, w.claim(t).Spec.AccessModes)
}

// The cache shows a claim that was deleted at the provider: an update would make it again, empty.
func TestAnUpdateMakesNoClaim(t *testing.T) {
	w := newWorld(t, []runtime.Object{localClaim("1"), made(volume("1", "p"), "p")}, nil, []runtime.Object{remoteClaim("1")})
	var sent []byte
	w.there.PrependReactor("patch", "persistentvolumeclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		sent = a.(clienttesting.PatchAction).GetPatch()
		return false, nil, nil
	})
	require.NoError(t, w.Handle(t.Context(), "data"))
	require.Contains(t, string(sent), `"uid":"there"`, "the API server answers Conflict if there is none of that UID")
}

// The claim of another virtual kubelet of this project, for a Node of its own.
func TestAClaimOfAnotherNodeIsLeft(t *testing.T) {
	other := remoteClaim("")
	other.Annotations[v1alpha1.ClaimOriginAnnotation] = "uid"
	w := newWorld(t, nil, nil, []runtime.Object{other})
	require.NoError(t, w.Handle(t.Context(), "data"))
	require.NotNil(t, w.claim(t))
}

// The cache does not show the claim that was just made.
func TestAClaimThatTheCacheLacksIsNotLost(t *testing.T) {
	w := newWorld(t, []runtime.Object{localClaim("1"), made(volume("1", "p"), "p")}, nil, nil)
	_, err := w.there.CoreV1().PersistentVolumeClaims("ns-there").Create(t.Context(), remoteClaim("1"), metav1.CreateOptions{})
	require.NoError(t, err)
	w.there.PrependReactor("list", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.PersistentVolumeClaimList{}, nil
	})
	require.NoError(t, w.Handle(t.Context(), "data"))
	require.Empty(t, w.events.Events)
}

func TestExpansion(t *testing.T) {
	larger := localClaim("1")
	larger.Spec.Resources.Requests = gib("2Gi")
	there := remoteClaim("1")
	there.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: gib("2Gi")}
	w := newWorld(t, []runtime.Object{larger, volume("1", "p")}, nil, []runtime.Object{there})
	require.NoError(t, w.Handle(t.Context(), "data"))
	require.Equal(t, "2Gi", ptr.To(w.claim(t).Spec.Resources.Requests[corev1.ResourceStorage]).String())
	of, err := w.here.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-1", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "2Gi", ptr.To(of.Spec.Capacity[corev1.ResourceStorage]).String())
	require.Equal(t, "p", of.Annotations[v1alpha1.MadeAtAnnotation], "it was there before the annotation was written")
}

func TestVolumesConcernTheirClaims(t *testing.T) {
	require.Equal(t, []types.NamespacedName{{Namespace: "ns", Name: "data"}}, claimOf("ns")(volume("1", "p")))
	require.Empty(t, claimOf("other")(volume("1", "p")))
	require.Empty(t, claimOf("ns")(&corev1.PersistentVolume{}))
	require.Empty(t, claimOf("ns")(&corev1.Pod{}))
}
