package view

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
)

func TestWhereAConsumersRightsAreAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		namespaces []*corev1.Namespace
		want       string
	}{
		"the tenant namespace of the cluster": {
			namespaces: []*corev1.Namespace{tenantNamespaceOf("liqo-tenant-c1", "c1"), tenantNamespaceOf("liqo-tenant-c2", "c2")},
			want:       "liqo-tenant-c1",
		},
		"nowhere, if there is none": {
			namespaces: []*corev1.Namespace{tenantNamespaceOf("liqo-tenant-c2", "c2")},
		},
		"not in a namespace that the cluster sent": {
			namespaces: []*corev1.Namespace{namespaceOf("liqo-tenant-c1", "c1")},
		},
		"nowhere, if two say that they are it": {
			namespaces: []*corev1.Namespace{tenantNamespaceOf("liqo-tenant-c1", "c1"), tenantNamespaceOf("forged", "c1")},
		},
		"in the one that is left": {
			namespaces: []*corev1.Namespace{
				tenantNamespaceOf("liqo-tenant-c1", "c1"), tenantNamespaceOf("forged", "c1"), namespaceOf("forged", "c1"),
			},
			want: "liqo-tenant-c1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFed(Config{})
			for _, n := range c.namespaces {
				f.sees(n)
			}
			got, ok := f.TenantNamespace("c1")
			require.Equal(t, c.want, got)
			require.Equal(t, c.want != "", ok)
			for _, n := range c.namespaces {
				of, ok := f.TenantOf(n.Name)
				require.Equal(t, n.Name == c.want, ok && of == "c1", n.Name)
			}
		})
	}
}

func TestWhereANamespaceCameFrom(t *testing.T) {
	f := newFed(Config{})
	f.sees(namespaceOf("theirs", "c1"), namespaceOf("ours", ""), tenantNamespaceOf("liqo-tenant-c1", "c1"))
	require.Equal(t, "c1", f.ConsumerOfNamespace("theirs"))
	require.Empty(t, f.ConsumerOfNamespace("ours"))
	require.Empty(t, f.ConsumerOfNamespace("liqo-tenant-c1"), "it was made here")
	for _, name := range []string{"theirs", "ours", "liqo-tenant-c1"} {
		require.True(t, f.HasNamespace(name), name)
	}
	require.False(t, f.HasNamespace("unheard of"))
	require.Empty(t, f.ConsumerOfNamespace("unheard of"))
	f.misses(namespaceOf("theirs", "c1"), tenantNamespaceOf("liqo-tenant-c1", "c1"))
	require.Empty(t, f.ConsumerOfNamespace("theirs"))
	require.False(t, f.HasNamespace("theirs"))
	_, ok := f.TenantNamespace("c1")
	require.False(t, ok)
	_, ok = f.TenantOf("")
	require.False(t, ok)
}

func TestForeignClustersShowNoMoreThanTheyMust(t *testing.T) {
	f := newFed(Config{})
	original := &liqov1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p2", Labels: map[string]string{consts.RemoteClusterID: "p2"},
			Annotations:   map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "note": "kept"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Spec: liqov1beta1.ForeignClusterSpec{ClusterID: "p2"},
	}
	other := original.DeepCopy()
	other.Name = "p1"
	before := original.DeepCopy()
	f.sees(original, other)
	require.Equal(t, before, original, "it is the informer's")

	got := f.ForeignClusters()
	require.Len(t, got, 2)
	require.Equal(t, "p1", got[0].Name)
	require.Equal(t, metav1.TypeMeta{Kind: "ForeignCluster", APIVersion: "core.liqo.io/v1beta1"}, got[1].TypeMeta)
	require.Equal(t, map[string]string{"note": "kept"}, got[1].Annotations)
	require.Empty(t, got[1].ManagedFields)
	require.Equal(t, before.Spec, got[1].Spec)

	f.misses(original, other)
	require.Empty(t, f.ForeignClusters())
	require.NotNil(t, f.ForeignClusters(), "it is an empty list in JSON")
}
