package deploy

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// As a sidecar, the catalog is the same container as in its own pods, but in the broker's pods, with the broker's
// account.
func TestTheCatalogAsASidecar(t *testing.T) {
	own, objects := rendered(t, All), rendered(t, Sidecar)
	for _, gone := range []string{
		"Deployment", "ServiceAccount", "PodDisruptionBudget", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	} {
		require.True(t, has(own, gone, "liqo-broker-catalog"), gone)
		require.False(t, has(objects, gone, "liqo-broker-catalog"), gone)
	}
	broker := find[appsv1.Deployment](t, objects, "Deployment", "liqo-broker").Spec.Template.Spec
	alone := find[appsv1.Deployment](t, own, "Deployment", "liqo-broker").Spec.Template.Spec
	catalog := find[appsv1.Deployment](t, own, "Deployment", "liqo-broker-catalog").Spec.Template.Spec
	require.Equal(t, append(alone.Containers, catalog.Containers...), broker.Containers)
	require.Equal(t, "liqo-broker", broker.ServiceAccountName)

	names, numbers := sets.New[string](), sets.New[int32]()
	for _, container := range broker.Containers {
		for _, port := range container.Ports {
			require.False(t, names.Has(port.Name) || numbers.Has(port.ContainerPort), "%s twice", port.Name)
			names.Insert(port.Name)
			numbers.Insert(port.ContainerPort)
		}
	}

	// The account has the rights of both, through the roles of both.
	for _, o := range objects {
		switch o.GetKind() {
		case "ClusterRoleBinding":
			for _, subject := range find[rbacv1.ClusterRoleBinding](t, objects, o.GetKind(), o.GetName()).Subjects {
				require.NotEqual(t, "liqo-broker-catalog", subject.Name, o.GetName())
			}
		case "RoleBinding":
			for _, subject := range find[rbacv1.RoleBinding](t, objects, o.GetKind(), o.GetName()).Subjects {
				require.NotEqual(t, "liqo-broker-catalog", subject.Name, o.GetName())
			}
		}
	}
	require.Equal(t, "liqo-broker",
		find[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding", "liqo-broker-catalog").Subjects[0].Name)
	require.Equal(t, "liqo-broker", find[rbacv1.RoleBinding](t, objects, "RoleBinding", "liqo-broker-catalog").Subjects[0].Name)
	require.Equal(t, find[rbacv1.ClusterRole](t, own, "ClusterRole", "liqo-broker-vk-catalog"),
		find[rbacv1.ClusterRole](t, objects, "ClusterRole", "liqo-broker-vk-catalog"))
}

// The catalog's volumes are in the pods that it runs in.
func TestTheSidecarHasItsVolumes(t *testing.T) {
	values := Values(Sidecar)
	values["catalog"] = map[string]any{
		"mode": "sidecar", "tlsSecret": "public", "volumes": []any{map[string]any{"name": "more", "emptyDir": map[string]any{}}},
	}
	objects, err := here.RenderedWith(Namespace, values)
	require.NoError(t, err)
	pod := find[appsv1.Deployment](t, objects, "Deployment", "liqo-broker").Spec.Template.Spec
	var names []string
	for _, volume := range pod.Volumes {
		names = append(names, volume.Name)
	}
	require.Equal(t, []string{"tmp", "tls", "more"}, names)
	require.Contains(t, pod.Containers[1].VolumeMounts,
		corev1.VolumeMount{Name: "tls", MountPath: "/etc/liqo-broker-catalog", ReadOnly: true})
}
