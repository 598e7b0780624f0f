package volumes

import (
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

var request = ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "data"}}

func claim(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "data", UID: "1", Annotations: map[string]string{"volume.kubernetes.io/selected-node": "broker"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("liqo"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			VolumeMode: ptr.To(corev1.PersistentVolumeBlock),
			Resources:  corev1.VolumeResourceRequirements{Requests: amount("1Gi")},
		},
	}
	for _, change := range change {
		change(c)
	}
	return c
}

func amount(of string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(of)}
}

func class(change ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	c := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo"}, Provisioner: "liqo.io/storage",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimRetain),
	}
	for _, change := range change {
		change(c)
	}
	return c
}

func newController(t *testing.T, objects ...client.Object) *Controller {
	t.Helper()
	scheme, err := apischeme.New()
	require.NoError(t, err)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&corev1.PersistentVolumeClaim{}).Build()
	return New(Config{Log: testr.New(t), Client: c, Events: record.NewFakeRecorder(10), NodeName: "broker"})
}

func (c *Controller) volume(t *testing.T, name string) *corev1.PersistentVolume {
	t.Helper()
	var volume corev1.PersistentVolume
	err := c.Client.Get(t.Context(), client.ObjectKey{Name: name}, &volume)
	if kerrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return &volume
}

func TestAVolumeIsMadeForTheNode(t *testing.T) {
	c := newController(t, claim(), class())
	for range 2 { // The cache may lack the volume.
		_, err := c.ReconcileClaim(t.Context(), request)
		require.NoError(t, err)
	}
	volume := c.volume(t, "pvc-1")
	require.Equal(t, map[string]string{v1alpha1.VolumeLabel: "true"}, volume.Labels, "it is at no provider yet")
	require.Equal(t, corev1.PersistentVolumeSpec{
		StorageClassName: "liqo", AccessModes: claim().Spec.AccessModes, VolumeMode: claim().Spec.VolumeMode, Capacity: amount("1Gi"),
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/liqo-placeholder"}},
		ClaimRef: &corev1.ObjectReference{
			Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "ns",
			Name: "data", UID: "1",
		},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: "In", Values: []string{"broker"}}},
		}}}},
	}, volume.Spec)
	require.Equal(t, "liqo.io/storage", volume.Annotations["pv.kubernetes.io/provisioned-by"])
}

func TestNoVolumeIsMade(t *testing.T) {
	for name, tc := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		class *storagev1.StorageClass
		event string
	}{
		"no node yet": {claim(func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }), class(), ""},
		"another node": {claim(func(c *corev1.PersistentVolumeClaim) {
			c.Annotations["volume.kubernetes.io/selected-node"] = "n"
		}), class(), ""},
		"bound":           {claim(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" }), class(), ""},
		"another's class": {claim(), class(func(c *storagev1.StorageClass) { c.Provisioner = "csi" }), ""},
		"made at once":    {claim(), class(func(c *storagev1.StorageClass) { c.VolumeBindingMode = nil }), ""},
		"no class":        {claim(func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }), class(), ""},
		"of a snapshot": {claim(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "VolumeSnapshot", Name: "s"}
		}), class(), "spec.dataSource"},
		"with attributes": {claim(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeAttributesClassName = ptr.To("gold")
		}), class(), "spec.volumeAttributesClassName"},
		"selected": {claim(func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} }), class(), "spec.selector"},
		"deleted": {claim(func(c *corev1.PersistentVolumeClaim) {
			c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.Now()), []string{"kubernetes.io/pvc-protection"}
		}), class(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t, tc.claim, tc.class)
			_, err := c.ReconcileClaim(t.Context(), request)
			require.NoError(t, err)
			require.Nil(t, c.volume(t, "pvc-1"))
			if events := c.Events.(*record.FakeRecorder).Events; tc.event != "" {
				require.Contains(t, <-events, tc.event)
			} else {
				require.Empty(t, events)
			}
		})
	}
}

func TestAClaimShowsItsExpandedVolume(t *testing.T) {
	bound := claim(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Status = "pvc-1", corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: amount("1Gi")}
	})
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Labels: map[string]string{v1alpha1.VolumeLabel: "true"}},
		Spec: corev1.PersistentVolumeSpec{Capacity: amount("3Gi"), ClaimRef: &corev1.ObjectReference{
			Namespace: "ns",
			Name:      "data", UID: "1",
		}},
	}
	c := newController(t, bound, volume)
	require.Equal(t, []ctrl.Request{request}, claimOf(t.Context(), volume))
	_, err := c.ReconcileClaim(t.Context(), request)
	require.NoError(t, err)
	var shown corev1.PersistentVolumeClaim
	require.NoError(t, c.Client.Get(t.Context(), request.NamespacedName, &shown))
	require.Equal(t, "3Gi", shown.Status.Capacity.Storage().String())
}

func TestAVolumeIsDeletedAfterItsClaim(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.PersistentVolume)
		gone   bool
	}{
		"released": {func(*corev1.PersistentVolume) {}, true},
		"bound":    {func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound }, false},
		"kept": {func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}, false},
		"not of this Node": {func(v *corev1.PersistentVolume) { v.Labels = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			volume := &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", UID: "v", Labels: map[string]string{v1alpha1.VolumeLabel: "true"}},
				Spec:       corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
				Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
			}
			tc.change(volume)
			c := newController(t, volume)
			_, err := c.ReconcileVolume(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "pvc-1"}})
			require.NoError(t, err)
			require.Equal(t, tc.gone, c.volume(t, "pvc-1") == nil)
		})
	}
}
