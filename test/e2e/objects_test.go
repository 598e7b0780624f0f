package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const reflectionTime = 20 * time.Second

func configuration(t *testing.T, f *federation) {
	local, remote := f.namespaces(t)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: local}, Data: map[string]string{"colour": "red"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key", Namespace: local}, Data: map[string][]byte{"key": []byte("one")}}
	require.NoError(t, f.local.Client.Create(t.Context(), cm))
	require.NoError(t, f.local.Client.Create(t.Context(), secret))
	expect := func(colour, key string) {
		t.Helper()
		eventually(t, reflectionTime, func(ctx context.Context) error {
			var theirCM corev1.ConfigMap
			var theirSecret corev1.Secret
			if err := f.remote.Client.Get(ctx, client.ObjectKey{Namespace: remote, Name: cm.Name}, &theirCM); err != nil {
				return err
			}
			if err := f.remote.Client.Get(ctx, client.ObjectKey{Namespace: remote, Name: secret.Name}, &theirSecret); err != nil {
				return err
			}
			if theirCM.Data["colour"] != colour || string(theirSecret.Data["key"]) != key {
				return fmt.Errorf("remote has %v and %s", theirCM.Data, theirSecret.Data)
			}
			return nil
		})
	}
	expect("red", "one")
	cm.Data["colour"], secret.Data["key"] = "blue", []byte("two")
	require.NoError(t, f.local.Client.Update(t.Context(), cm))
	require.NoError(t, f.local.Client.Update(t.Context(), secret))
	expect("blue", "two")
	for _, o := range []client.Object{cm, secret} {
		require.NoError(t, f.local.Client.Delete(t.Context(), o))
		f.expectGone(t, remote, o)
	}
}

// expectGone waits until the remote copy of an object is gone.
func (f *federation) expectGone(t *testing.T, remote string, o client.Object) {
	t.Helper()
	copied := o.DeepCopyObject().(client.Object)
	eventually(t, reflectionTime, func(ctx context.Context) error {
		err := f.remote.Client.Get(ctx, client.ObjectKey{Namespace: remote, Name: o.GetName()}, copied)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(fmt.Errorf("%s is still there", o.GetName()), err)
	})
}

// services checks a Service on both sides: each side sees every endpoint once, at an address that it can reach.
func services(t *testing.T, f *federation) {
	local, remote := f.namespaces(t)
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: local},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}
	require.NoError(t, f.local.Client.Create(t.Context(), svc))
	require.NoError(t, f.local.Client.Create(t.Context(), newDeployment(local, "web", 2)))
	eventually(t, time.Minute, func(ctx context.Context) error { return allRunning(ctx, f.local, local, 2) })

	// A real endpoint of this cluster, beside the offloaded ones.
	const own = "10.244.9.9"
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-here", Namespace: local, Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{own}, NodeName: ptr.To(f.local.HostNode()), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(80))}},
	}
	require.NoError(t, f.local.Client.Create(t.Context(), slice))

	ownThere := translate(t, own, f.localPodRange(t))
	f.expectEndpoints(t, f.local, local, svc.Name, own)
	f.expectEndpoints(t, f.remote, remote, svc.Name, ownThere)

	require.NoError(t, f.local.Client.Delete(t.Context(), slice))
	f.expectEndpoints(t, f.remote, remote, svc.Name)
	require.NoError(t, f.local.Client.Delete(t.Context(), svc))
	f.expectGone(t, remote, svc)
}

// expectEndpoints waits until the ready endpoints of a Service are exactly the pods of its namespace and the given
// others. It reads the pods each time: KWOK may write a second address of a new pod.
func (f *federation) expectEndpoints(t *testing.T, c *sandbox.Cluster, namespace, service string, others ...string) {
	t.Helper()
	eventually(t, reflectionTime, func(ctx context.Context) error {
		list, err := pods(ctx, c, namespace)
		if err != nil {
			return err
		}
		want := slices.Clone(others)
		for i := range list {
			want = append(want, list[i].Status.PodIP)
		}
		slices.Sort(want)
		got, err := readyEndpoints(ctx, c, namespace, service)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%s sees endpoints %v, want %v", c.Name, got, want)
		}
		return err
	})
}

// readyEndpoints returns the addresses of the ready endpoints of a Service, sorted and including duplicates.
func readyEndpoints(ctx context.Context, c *sandbox.Cluster, namespace, service string) ([]string, error) {
	var list discoveryv1.EndpointSliceList
	err := c.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service})
	var got []string
	for i := range list.Items {
		for _, e := range list.Items[i].Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				got = append(got, e.Addresses...)
			}
		}
	}
	slices.Sort(got)
	return got, err
}

// remotePodRange returns the range at which local sees remote's pods, localPodRange the range at which remote sees
// local's.
func (f *federation) remotePodRange(t *testing.T) netip.Prefix { return podRange(t, f.local, f.remote) }

func (f *federation) localPodRange(t *testing.T) netip.Prefix { return podRange(t, f.remote, f.local) }

func podRange(t *testing.T, of, remote *sandbox.Cluster) netip.Prefix {
	t.Helper()
	var conf networkingv1beta1.Configuration
	key := client.ObjectKey{Namespace: "liqo-tenant-" + remote.Name, Name: remote.Name}
	require.NoError(t, of.Client.Get(t.Context(), key, &conf))
	p, err := netip.ParsePrefix(string(conf.Status.Remote.CIDR.Pod[0]))
	require.NoError(t, err)
	require.NotEqual(t, "10.244.0.0/16", p.String(), "the ranges overlap, so they must be remapped")
	return p
}

func ingress(t *testing.T, f *federation) {
	local, remote := f.namespaces(t)
	in := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "site", Namespace: local},
		Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}},
		}},
	}
	require.NoError(t, f.local.Client.Create(t.Context(), in))
	eventually(t, reflectionTime, func(ctx context.Context) error {
		var theirs networkingv1.Ingress
		if err := f.remote.Client.Get(ctx, client.ObjectKey{Namespace: remote, Name: in.Name}, &theirs); err != nil {
			return err
		}
		if class := ptr.Deref(theirs.Spec.IngressClassName, ""); class != sandbox.IngressClass {
			return fmt.Errorf("class %q, want the provider's", class)
		}
		return nil
	})
	require.NoError(t, f.local.Client.Delete(t.Context(), in))
	f.expectGone(t, remote, in)
}

func events(t *testing.T, f *federation) {
	local, _ := f.namespaces(t)
	pod := newPod(local, "eventful")
	f.runPod(t, pod)
	remote, err := f.remotePod(t.Context(), pod)
	require.NoError(t, err)
	now := metav1.Now()
	require.NoError(t, f.remote.Client.Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "eventful.pulled", Namespace: remote.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: remote.Namespace, Name: remote.Name, UID: remote.UID,
		},
		Reason: "Pulled", Message: "image is present at the provider", Type: corev1.EventTypeNormal,
		FirstTimestamp: now, LastTimestamp: now, Count: 1, Source: corev1.EventSource{Component: "kubelet"},
	}))
	eventually(t, reflectionTime, func(ctx context.Context) error {
		var list corev1.EventList
		if err := f.local.Client.List(ctx, &list, client.InNamespace(local)); err != nil {
			return err
		}
		for i := range list.Items {
			e := &list.Items[i]
			if e.Reason == "Pulled" && e.InvolvedObject.UID == pod.UID {
				return nil
			}
		}
		return fmt.Errorf("none of %d events is the remote one", len(list.Items))
	})
}

// volumes claims a volume of Liqo's virtual class: the provider binds it with its own class.
func volumes(t *testing.T, f *federation) {
	local, remote := f.namespaces(t)
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "disk"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName:       sandbox.StorageClass,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nonexistent"}},
		},
	}
	require.NoError(t, f.remote.Client.Create(t.Context(), volume))
	t.Cleanup(func() { _ = f.remote.Client.Delete(context.Background(), volume) })
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: local},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: volume.Spec.AccessModes, StorageClassName: ptr.To("liqo"),
			Resources: corev1.VolumeResourceRequirements{Requests: volume.Spec.Capacity},
		},
	}
	require.NoError(t, f.local.Client.Create(t.Context(), claim))
	pod := newPod(local, "keeper")
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
	}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	f.runPod(t, pod)
	for c, namespace := range map[*sandbox.Cluster]string{f.local: local, f.remote: remote} {
		eventually(t, reflectionTime, func(ctx context.Context) error {
			var got corev1.PersistentVolumeClaim
			if err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: claim.Name}, &got); err != nil {
				return err
			}
			if got.Status.Phase != corev1.ClaimBound {
				return fmt.Errorf("%s: claim is %s", c.Name, got.Status.Phase)
			}
			return nil
		})
	}
}
