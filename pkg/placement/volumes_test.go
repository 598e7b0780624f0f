package placement

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

func TestClaimsOfAPod(t *testing.T) {
	named := func(name string) corev1.Volume {
		return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}
	require.Empty(t, ClaimsOf(pod))
	pod.Spec.Volumes = []corev1.Volume{
		named("b"),
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		named("a"), named("b"),
	}
	require.Equal(t, []string{"a", "b", "pod-scratch"}, ClaimsOf(pod))
}

func TestRemoteStorageClass(t *testing.T) {
	for name, tc := range map[string]struct{ class, annotation, want string }{
		"Liqo's class":                            {"liqo", "", ""},
		"none":                                    {"", "", ""},
		"a class that a provider offers":          {"ssd", "", "ssd"},
		"Liqo's class, another at the provider":   {"liqo", "ssd", "ssd"},
		"from a consumer that named Liqo's class": {"liqo", "liqo", ""},
		"from a consumer that named a class":      {"ssd", "ssd", "ssd"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(tc.class)}}
			claim.Annotations = map[string]string{consts.RemotePVCStorageClassAnnotKey: tc.annotation}
			require.Equal(t, tc.want, RemoteStorageClass(claim))
		})
	}
}

func TestVolumesOfAPod(t *testing.T) {
	volumes := func(name, class, provider string) []client.Object {
		volume := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + name, Labels: map[string]string{v1alpha1.VolumeLabel: "true"}},
			Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: types.UID(name)}},
		}
		if provider != "" {
			volume.Labels[v1alpha1.ProviderLabel] = provider
			volume.Annotations = map[string]string{v1alpha1.MadeAtAnnotation: provider}
		}
		return []client.Object{volume, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-" + name, StorageClassName: ptr.To(class)},
		}}
	}
	scheme, err := apischeme.New()
	require.NoError(t, err)
	objects := append(volumes("a", "liqo", ""), volumes("b", "ssd", "p1")...)
	p := &Policies{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, volumes("c", "liqo",
		"p1")...)...).Build()}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}}
	read := func(policy *v1alpha1.PlacementPolicy) (*scheduler.Volumes, error) {
		var c Criteria
		err := p.readClaims(t.Context(), &c, pod, policy)
		return c.Volumes, err
	}
	got, err := read(nil)
	require.NoError(t, err)
	require.Nil(t, got)
	for _, name := range []string{"a", "b", "c"} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
	want := &scheduler.Volumes{Provider: "p1", Claim: "b", Classes: []string{""}}
	got, err = read(nil)
	require.NoError(t, err)
	require.Equal(t, want, got)

	// A decision about another pod was written in part.
	unmade := volumes("a", "liqo", "p2")[0].(*corev1.PersistentVolume)
	unmade.Annotations = nil
	require.NoError(t, p.Client.(client.Client).Update(t.Context(), unmade))
	_, err = read(nil)
	require.ErrorIs(t, err, ErrVolume)
	require.ErrorIs(t, err, ErrInvalid)
	p.Nowhere = func(_ context.Context, _ *corev1.Pod, claim *Claim, _ *Rules) (bool, error) {
		return claim.Name == "a", nil
	}
	got, err = read(nil)
	require.NoError(t, err)
	require.Equal(t, want, got)

	// A made volume is asked about only if its policy lets it be recreated.
	p.Nowhere = func(context.Context, *corev1.Pod, *Claim, *Rules) (bool, error) { return true, nil }
	got, err = read(nil)
	require.NoError(t, err)
	require.Equal(t, want, got)
	got, err = read(&v1alpha1.PlacementPolicy{Spec: v1alpha1.PlacementPolicySpec{Volumes: v1alpha1.VolumesRecreate}})
	require.NoError(t, err)
	require.Equal(t, &scheduler.Volumes{Classes: []string{"", "ssd", ""}}, got)

	// An API server that does not answer says nothing about the criteria.
	p.Client = interceptor.NewClient(p.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return kerrors.NewTooManyRequestsError("later")
		},
	})
	_, err = p.CriteriaUnder(t.Context(), pod, &corev1.Namespace{}, nil)
	require.True(t, kerrors.IsTooManyRequests(err))
	require.NotErrorIs(t, err, ErrInvalid)
}

// A provider writes the names.
func TestStorageClassesOfAProvider(t *testing.T) {
	offering := func(name string, classes ...string) *offloadingv1beta1.VirtualNode {
		vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, class := range classes {
			vn.Spec.StorageClasses = append(vn.Spec.StorageClasses, liqov1beta1.StorageType{StorageClassName: class})
		}
		return vn
	}
	pc := &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: "p1"}}
	pc.Status.VirtualNodes = []v1alpha1.VirtualNodeStatus{{Name: "v1"}, {Name: "v2"}}
	p := Provider(pc, []*offloadingv1beta1.VirtualNode{
		offering("v1", "disk", "ssd", "not a name", ""), offering("v2", "disk"), offering("ignored", "tape"),
	}, nil)
	require.Equal(t, sets.New("disk", "ssd"), p.StorageClasses)
	require.Nil(t, Provider(pc, nil, nil).StorageClasses)
}
