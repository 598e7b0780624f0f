package auth

import (
	"context"
	cryptox509 "crypto/x509"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

const (
	// rejectedTTL is for callers of a kubelet API.
	rejectedTTL = 10 * time.Second
	// reviewTimeout bounds one review by the API server.
	reviewTimeout = 10 * time.Second

	clientCANamespace = metav1.NamespaceSystem
	clientCAConfigMap = "extension-apiserver-authentication"
	clientCAKey       = "client-ca-file"
)

// ClientCA is the CA of the client certificates; it follows rotations.
type ClientCA interface {
	dynamiccertificates.CAContentProvider
	dynamiccertificates.ControllerRunner
}

// NewClientCA returns the CA in file or, with "", the CA that the API server publishes in the ConfigMap
// kube-system/extension-apiserver-authentication. It follows changes while its Run runs.
func NewClientCA(file string, local kubernetes.Interface) (ClientCA, error) {
	if file == "" {
		return dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca",
			clientCANamespace, clientCAConfigMap, clientCAKey, local)
	}
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", file)
	if err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	return ca, nil
}

// NewAuthenticator accepts a client certificate of ca, or a bearer token that the API server accepts. An error names
// the remedy if this process may not create TokenReviews. The parts are the real kubelet's, from k8s.io/apiserver.
// Their factory (authenticatorfactory.DelegatingAuthenticatorConfig) links gRPC, the konnectivity client and the
// OpenTelemetry exporters, 130 packages, for one TokenReview.
func NewAuthenticator(ca dynamiccertificates.CAContentProvider, local kubernetes.Interface, remedy string) authenticator.Request {
	tokens := NewTokens(NewTokenReviewer(local, remedy), rejectedTTL, clock.RealClock{})
	return group.NewAuthenticatedGroupAdder(union.New(newCertificates(ca), bearertoken.New(tokens)))
}

// NewCertificateAuthenticator accepts a client certificate of ca.
func NewCertificateAuthenticator(ca dynamiccertificates.CAContentProvider) authenticator.Request {
	return group.NewAuthenticatedGroupAdder(newCertificates(ca))
}

func newCertificates(ca dynamiccertificates.CAContentProvider) authenticator.Request {
	return x509.NewDynamic(ca.VerifyOptions, x509.UserConversionFunc(oneOrganization))
}

// oneOrganization rejects a certificate with several organisations, which are groups: Liqo signs the request of a peer
// if the first organisation is the peer's (pkg/liqo-controller-manager/authentication, checkCSR), and the peer chooses
// the others.
func oneOrganization(chain []*cryptox509.Certificate) (*authenticator.Response, bool, error) {
	if organizations := chain[0].Subject.Organization; len(organizations) > 1 {
		return nil, false, fmt.Errorf("the client certificate has %d organizations, and only one is accepted", len(organizations))
	}
	return x509.CommonNameUserConversion.User(chain)
}

// ErrRejected is the error for a token that the API server has reviewed and does not accept.
var ErrRejected = errors.New("the token is not valid")

// NewTokenReviewer reviews a token in every call: its callers cache the answers. It returns an ErrRejected for a token
// that is not valid, and a *MissingPermissionError if this process may not create TokenReviews.
func NewTokenReviewer(local kubernetes.Interface, remedy string) authenticator.Token {
	return tokenReviewer{local: local, remedy: remedy}
}

// tokenReviewer creates TokenReviews.
type tokenReviewer struct {
	local  kubernetes.Interface
	remedy string
}

func (t tokenReviewer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := t.local.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	switch {
	case kerrors.IsForbidden(err):
		return nil, false, &MissingPermissionError{Remedy: t.remedy}
	case err != nil:
		return nil, false, fmt.Errorf("token review: %w", err)
	case !review.Status.Authenticated && review.Status.Error != "":
		return nil, false, fmt.Errorf("%w: %s", ErrRejected, review.Status.Error)
	case !review.Status.Authenticated:
		return nil, false, ErrRejected
	}
	who := review.Status.User
	extra := make(map[string][]string, len(who.Extra))
	for key, values := range who.Extra {
		extra[key] = values
	}
	return &authenticator.Response{User: &user.DefaultInfo{
		Name: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra,
	}}, true, nil
}
