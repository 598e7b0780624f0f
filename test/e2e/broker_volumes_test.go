package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqotech/liqo/pkg/consts"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// liqoClass is the storage class of Liqo's chart.
const liqoClass = "liqo"

// newClaim is a claim of 1 GiB.
func newClaim(namespace, name, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To(class),
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}
}

func withClaim(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
}

// disks makes volumes in a cluster, which are there until the test ends: the class has no provisioner.
func disks(t *testing.T, c *sandbox.Cluster, count int) {
	t.Helper()
	for range count {
		disk := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "disk-"},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				StorageClassName:       sandbox.StorageClass,
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nonexistent"}},
			},
		}
		require.NoError(t, c.Client.Create(t.Context(), disk))
		t.Cleanup(func() { _ = c.Client.Delete(context.Background(), disk) })
	}
}

// claimed returns nil if a claim of the broker's cluster is bound, at a provider, and bound at exactly that provider: the
// provider.
func (b *brokered) claimed(ctx context.Context, namespace, name string) (at string, err error) {
	volume, err := b.volume(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	at = volume.Labels[brokeringv1alpha1.ProviderLabel]
	for _, provider := range b.providers {
		var there corev1.PersistentVolumeClaim
		err := provider.Client.Get(ctx, client.ObjectKey{Namespace: b.broker.RemoteNamespace(namespace), Name: name}, &there)
		switch {
		case provider.Name != at && apierrors.IsNotFound(err):
		case err != nil:
			return "", fmt.Errorf("%s: %w", provider.Name, err)
		case provider.Name != at:
			return "", fmt.Errorf("claim %s is at %s, its volume at %q", name, provider.Name, at)
		case there.Status.Phase != corev1.ClaimBound:
			return "", fmt.Errorf("%s: claim %s is %s", at, name, there.Status.Phase)
		}
	}
	if at == "" {
		return "", fmt.Errorf("the volume of claim %s is at no provider", name)
	}
	return at, nil
}

// volume returns the volume of a claim of the broker's cluster.
func (b *brokered) volume(ctx context.Context, namespace, name string) (*corev1.PersistentVolume, error) {
	var claim corev1.PersistentVolumeClaim
	if err := b.broker.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &claim); err != nil {
		return nil, err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return nil, fmt.Errorf("claim %s is %s", name, claim.Status.Phase)
	}
	var volume corev1.PersistentVolume
	return &volume, b.broker.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &volume)
}

func (b *brokered) boundAt(t *testing.T, namespace, name string) (at string) {
	t.Helper()
	eventually(t, patient, func(ctx context.Context) (err error) {
		at, err = b.claimed(ctx, namespace, name)
		return err
	})
	return at
}

// noClaims returns nil if a namespace has no claims, here and at the providers, and no volumes here.
func (b *brokered) noClaims(ctx context.Context, namespace string) error {
	clusters := map[*sandbox.Cluster]string{b.broker: namespace}
	for _, provider := range b.providers {
		clusters[provider] = b.broker.RemoteNamespace(namespace)
	}
	for cluster, in := range clusters {
		var claims corev1.PersistentVolumeClaimList
		if err := cluster.Client.List(ctx, &claims, client.InNamespace(in)); err != nil {
			return err
		}
		if len(claims.Items) > 0 {
			return fmt.Errorf("%s has claim %s", cluster.Name, claims.Items[0].Name)
		}
	}
	var volumes corev1.PersistentVolumeList
	if err := b.broker.Client.List(ctx, &volumes, client.HasLabels{brokeringv1alpha1.VolumeLabel}); err != nil {
		return err
	}
	for i := range volumes.Items {
		if ref := volumes.Items[i].Spec.ClaimRef; ref != nil && ref.Namespace == namespace {
			return fmt.Errorf("volume %s of claim %s is left", volumes.Items[i].Name, ref.Name)
		}
	}
	return nil
}

// volumes tests claims of Liqo's class: the provider of the first pod makes the volume, and later pods go there.
func (b *brokered) volumes(t *testing.T) {
	for _, provider := range b.providers {
		disks(t, provider, 8)
		b.restore(t, provider.Name)
	}
	t.Run("of a consumer", b.volumesOfAConsumer)
	t.Run("stay where they are", b.volumesStay)
	t.Run("recreated", b.volumesRecreated)
	t.Run("that no provider has", b.volumesOfThisCluster)
	t.Run("are expanded", b.volumesExpanded)
}

// volumesOfAConsumer go two hops.
func (b *brokered) volumesOfAConsumer(t *testing.T) {
	const namespace = "databases"
	require.NoError(t, b.consumer.Offload(t.Context(), namespace))
	atBroker := b.consumer.RemoteNamespace(namespace)
	require.NoError(t, b.broker.Offload(t.Context(), atBroker))
	// Without it the claims here would be of the class that Liqo offers by itself, whose volumes this cluster makes.
	ofLiqo := map[string]string{consts.RemotePVCStorageClassAnnotKey: liqoClass}
	template := newPod(namespace, "db")
	withClaim("data")(template)
	template.Spec.Volumes = append(template.Spec.Volumes[:0], corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{
		Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Annotations: ofLiqo}, Spec: newClaim("", "", liqoClass).Spec,
		}},
	}})
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: namespace},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(int32(3)), PodManagementPolicy: appsv1.ParallelPodManagement, ServiceName: "db",
			Selector:             &metav1.LabelSelector{MatchLabels: template.Labels},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: template.Labels}, Spec: template.Spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*newClaim("", "data", liqoClass)},
		},
	}
	set.Spec.VolumeClaimTemplates[0].Annotations = ofLiqo
	require.NoError(t, b.consumer.Client.Create(t.Context(), set))
	eventually(t, patient, func(ctx context.Context) error { return allRunning(ctx, b.consumer, namespace, 3) })
	b.settle(t, atBroker, 3)
	places := map[string]string{}
	for i := range 3 {
		name := fmt.Sprintf("db-%d", i)
		places[name] = b.boundAt(t, atBroker, "data-"+name)
		assert.Equal(t, places[name], b.boundAt(t, atBroker, name+"-scratch"))
		require.NoError(t, b.runsAt(t.Context(), atBroker, name, places[name]))
	}

	// Its successor follows the volume.
	b.decide(t, places["db-0"], func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Cordoned = true })
	volume, err := b.volume(t.Context(), atBroker, "data-db-0")
	require.NoError(t, err)
	require.NoError(t, b.consumer.Client.Delete(t.Context(), newPod(namespace, "db-0")))
	b.explained(t, atBroker, "db-0", "NoProviderFits", "volume data-db-0 is at provider "+places["db-0"])
	b.decide(t, places["db-0"], func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Cordoned = false })
	eventually(t, patient, func(ctx context.Context) error { return allRunning(ctx, b.consumer, namespace, 3) })
	require.NoError(t, b.runsAt(t.Context(), atBroker, "db-0", places["db-0"]))
	after, err := b.volume(t.Context(), atBroker, "data-db-0")
	require.NoError(t, err)
	assert.Equal(t, volume.UID, after.UID)

	require.NoError(t, b.consumer.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	eventually(t, patient, func(ctx context.Context) error { return b.noClaims(ctx, atBroker) })
	b.settle(t, atBroker, 0)
}

// volumesStay at a provider that is drained, with their pods, which the condition Drained names. They end with their
// claim.
func (b *brokered) volumesStay(t *testing.T) {
	ns := b.namespace(t)
	claim := newClaim(ns, "data", liqoClass)
	require.NoError(t, b.broker.Client.Create(t.Context(), claim))
	b.create(t, ns, "first", 1, withClaim("data"))
	b.settle(t, ns, 1)
	at := b.boundAt(t, ns, "data")
	b.create(t, ns, "later", 3, withClaim("data"))
	b.create(t, ns, "free", 1, only(at))
	b.settle(t, ns, 5)
	for i := range 3 {
		require.NoError(t, b.runsAt(t.Context(), ns, fmt.Sprintf("later-%d", i), at))
	}

	before, err := b.identities(t.Context(), ns)
	require.NoError(t, err)
	b.decide(t, at, func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = true })
	eventually(t, patient, func(ctx context.Context) error {
		var pc brokeringv1alpha1.ProviderCluster
		if err := b.broker.Client.Get(ctx, client.ObjectKey{Name: at}, &pc); err != nil {
			return err
		}
		drained := meta.FindStatusCondition(pc.Status.Conditions, brokeringv1alpha1.ProviderDrained)
		if drained == nil || drained.Status != metav1.ConditionFalse ||
			!containsAll(drained.Message, []string{"4 pods are left, 4 stay because no other provider fits, such as " + ns + "/first-0"}) {
			return fmt.Errorf("condition %+v", drained)
		}
		return nil
	})
	first := newPod(ns, "first-0")
	require.NoError(t, b.broker.Client.Get(t.Context(), client.ObjectKeyFromObject(first), first))
	require.NoError(t, b.event(t.Context(), first, "MoveWaits", "Staying at "+at, "is being drained", "volume data is at provider "+at))
	b.decide(t, at, func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = false })
	b.settle(t, ns, 5)
	after, err := b.identities(t.Context(), ns)
	require.NoError(t, err)
	for _, name := range []string{"first-0", "later-0", "later-1", "later-2"} {
		assert.Equal(t, before[name], after[name], name)
	}

	// A claim of the same name is another one, and its volume may be at another provider.
	old, err := b.volume(t.Context(), ns, "data")
	require.NoError(t, err)
	require.NoError(t, b.broker.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(ns)))
	require.NoError(t, b.broker.Client.Delete(t.Context(), claim))
	eventually(t, patient, func(ctx context.Context) error { return b.noClaims(ctx, ns) })
	require.NoError(t, b.broker.Client.Create(t.Context(), newClaim(ns, "data", liqoClass)))
	b.create(t, ns, "next", 1, withClaim("data"))
	b.settle(t, ns, 1)
	b.boundAt(t, ns, "data")
	now, err := b.volume(t.Context(), ns, "data")
	require.NoError(t, err)
	assert.NotEqual(t, old.Name, now.Name)
	require.NoError(t, b.broker.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(ns)))
	require.NoError(t, b.broker.Client.DeleteAllOf(t.Context(), &corev1.PersistentVolumeClaim{}, client.InNamespace(ns)))
	eventually(t, patient, func(ctx context.Context) error { return b.noClaims(ctx, ns) })
}

// volumesRecreated belong to caches: their pods move like others.
func (b *brokered) volumesRecreated(t *testing.T) {
	ns := b.namespace(t)
	b.policy(t, ns, brokeringv1alpha1.PlacementPolicySpec{Volumes: brokeringv1alpha1.VolumesRecreate})
	require.NoError(t, b.broker.Client.Create(t.Context(), newClaim(ns, "cache", liqoClass)))
	b.create(t, ns, "cached", 1, withClaim("cache"))
	b.settle(t, ns, 1)
	at := b.boundAt(t, ns, "cache")
	watch := b.watchPlaces(t, ns)
	b.decide(t, at, func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = true })
	eventually(t, patient, func(ctx context.Context) error {
		now, err := b.claimed(ctx, ns, "cache")
		if err == nil && now == at {
			err = fmt.Errorf("the volume is still at %s", at)
		}
		return err
	})
	b.settle(t, ns, 1)
	watch.end(t)
	b.decide(t, at, func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = false })
}

// volumesOfThisCluster are at no provider: their pods wait, and say so.
func (b *brokered) volumesOfThisCluster(t *testing.T) {
	ns := b.namespace(t)
	disks(t, b.broker, 1)
	require.NoError(t, b.broker.Client.Create(t.Context(), newClaim(ns, "local", sandbox.StorageClass)))
	b.create(t, ns, "here", 1, withClaim("local"))
	b.explained(t, ns, "here-0", "VolumeNotAvailable", "PersistentVolumeClaim local is bound to a volume of this cluster",
		"use a storage class of the provisioner liqo.io/storage")

	// No provider offers the class.
	claim := newClaim(ns, "fast", liqoClass)
	claim.Annotations = map[string]string{consts.RemotePVCStorageClassAnnotKey: "nvme"}
	require.NoError(t, b.broker.Client.Create(t.Context(), claim))
	b.create(t, ns, "fast", 1, withClaim("fast"))
	b.explained(t, ns, "fast-0", "NoProviderFits", "offers no storage class nvme")
}

// volumesExpanded test the parts of this project: the test stands for a provisioner that expands.
func (b *brokered) volumesExpanded(t *testing.T) {
	ns := b.namespace(t)
	expands := func(c *sandbox.Cluster, class string, allow bool) {
		o := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}}
		body := fmt.Sprintf(`{"allowVolumeExpansion":%v}`, allow)
		require.NoError(t, c.Client.Patch(context.Background(), o, client.RawPatch(types.MergePatchType, []byte(body))))
	}
	expands(b.broker, liqoClass, true)
	defer expands(b.broker, liqoClass, false)
	for _, provider := range b.providers {
		expands(provider, sandbox.StorageClass, true)
		defer expands(provider, sandbox.StorageClass, false)
	}
	claim := newClaim(ns, "data", liqoClass)
	require.NoError(t, b.broker.Client.Create(t.Context(), claim))
	b.create(t, ns, "db", 1, withClaim("data"))
	b.settle(t, ns, 1)
	provider := b.Cluster(b.boundAt(t, ns, "data"))
	larger := []byte(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
	require.NoError(t, b.broker.Client.Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, larger)))
	there := newClaim(b.broker.RemoteNamespace(ns), "data", "")
	eventually(t, patient, func(ctx context.Context) error {
		err := provider.Client.Get(ctx, client.ObjectKeyFromObject(there), there)
		if amount := there.Spec.Resources.Requests[corev1.ResourceStorage]; err == nil && amount.String() != "2Gi" {
			err = fmt.Errorf("the claim at %s requests %s", provider.Name, amount.String())
		}
		return err
	})
	there.Status.Capacity[corev1.ResourceStorage] = resource.MustParse("2Gi")
	require.NoError(t, provider.Client.Status().Update(t.Context(), there))
	eventually(t, patient, func(ctx context.Context) error {
		err := b.broker.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		if amount := claim.Status.Capacity[corev1.ResourceStorage]; err == nil && amount.String() != "2Gi" {
			err = fmt.Errorf("the claim has %s", amount.String())
		}
		return err
	})
}
