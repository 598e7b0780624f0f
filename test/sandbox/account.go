package sandbox

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Account creates a ServiceAccount of the cluster for a user, binds it to a ClusterRole in all namespaces, and returns
// a token for it.
func (c *Cluster) Account(ctx context.Context, namespace, name, clusterRole string) (string, error) {
	return c.account(ctx, namespace, name, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: roleRef(clusterRole), Subjects: subjects(namespace, name),
	})
}

// AccountOfConsumer creates a ServiceAccount of the broker's cluster with the rights of a consumer's identity there,
// and returns a token for it.
func (c *Cluster) AccountOfConsumer(ctx context.Context, consumer, name string) (string, error) {
	namespace := tenantNamespace(consumer)
	return c.account(ctx, namespace, name, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    roleRef("liqo-remote-controlplane"), Subjects: subjects(namespace, name),
	})
}

func (c *Cluster) account(ctx context.Context, namespace, name string, binding client.Object) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, o := range []client.Object{account, binding} {
		if err := c.Client.Create(ctx, o); err != nil {
			return "", fmt.Errorf("account %s/%s: %w", namespace, name, err)
		}
	}
	token, err := c.Kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("account %s/%s: %w", namespace, name, err)
	}
	return token.Status.Token, nil
}

func roleRef(clusterRole string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole}
}

func subjects(namespace, name string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}
}
