// Package peeringtest has objects of Liqo for tests.
package peeringtest

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqotech/liqo/pkg/consts"
)

// Tenant is the tenant namespace of a cluster.
func Tenant(id string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-" + id, Labels: map[string]string{
		consts.RemoteClusterID: id, consts.TenantNamespaceLabel: "true",
	}}}
}
