package kubeletapi

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
)

// approving is a client that approves its own requests for a certificate, and no others. Kubernetes has no controller
// that approves serving certificates of kubelets, and Liqo's controller approves only its own virtual kubelets'
// requests.
type approving struct{ kubernetes.Interface }

func (a approving) CertificatesV1() certificatesclient.CertificatesV1Interface {
	return approvingV1{a.Interface.CertificatesV1()}
}

type approvingV1 struct {
	certificatesclient.CertificatesV1Interface
}

func (a approvingV1) CertificateSigningRequests() certificatesclient.CertificateSigningRequestInterface {
	return approvingRequests{a.CertificatesV1Interface.CertificateSigningRequests()}
}

type approvingRequests struct {
	certificatesclient.CertificateSigningRequestInterface
}

// Create makes the request and approves it.
func (a approvingRequests) Create(ctx context.Context, request *certificatesv1.CertificateSigningRequest,
	opts metav1.CreateOptions,
) (*certificatesv1.CertificateSigningRequest, error) {
	created, err := a.CertificateSigningRequestInterface.Create(ctx, request, opts)
	if err != nil {
		return nil, err
	}
	approved := created.DeepCopy()
	approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "OwnRequest", Message: "Auto approving the serving certificate of the requester's own node",
	})
	if _, err := a.UpdateApproval(ctx, created.Name, approved, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("approving CertificateSigningRequest %s of the serving certificate: %w", created.Name, err)
	}
	return created, nil
}
