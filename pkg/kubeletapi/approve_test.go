package kubeletapi

import (
	"testing"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestOnlyTheOwnRequestIsApproved(t *testing.T) {
	other := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	plain := fake.NewClientset(other)
	requests := approving{plain}.CertificatesV1().CertificateSigningRequests()
	_, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "own"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	list, err := requests.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 2)
	for _, request := range list.Items {
		if request.Name == "own" {
			require.Equal(t, certificatesv1.CertificateApproved, request.Status.Conditions[0].Type)
		} else {
			require.Empty(t, request.Status.Conditions)
		}
	}
}
