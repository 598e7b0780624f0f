package access

import (
	"context"
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
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
)

const (
	// tokenTTL is how long a reviewed token stays good, as in the real kubelet
	// (authentication.webhook.cacheTTL).
	tokenTTL = 2 * time.Minute
	// reviewTimeout bounds one question to the API server.
	reviewTimeout = 10 * time.Second

	clientCANamespace = metav1.NamespaceSystem
	clientCAConfigMap = "extension-apiserver-authentication"
	clientCAKey       = "client-ca-file"
)

// ClientCA is the CA of the client certificates, followed when it is rotated.
type ClientCA interface {
	dynamiccertificates.CAContentProvider
	dynamiccertificates.ControllerRunner
}

// NewClientCA is the CA in file, or with "", the one that the API server publishes in the ConfigMap
// kube-system/extension-apiserver-authentication. It is followed while its Run runs.
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

// NewAuthenticator accepts a client certificate of ca, or a bearer token that the API server knows; remedy is what to do
// if this process may not ask it, for the error. It is put together
// from the parts of k8s.io/apiserver that the real kubelet is made of. Its factory for all of it
// (authenticatorfactory.DelegatingAuthenticatorConfig) is not used: it links gRPC, the konnectivity client and the
// OpenTelemetry exporters, 130 packages, for the sake of one TokenReview.
func NewAuthenticator(ca dynamiccertificates.CAContentProvider, local kubernetes.Interface, remedy string) authenticator.Request {
	tokens := cache.New(NewTokenReviewer(local, remedy), false, tokenTTL, tokenTTL)
	return group.NewAuthenticatedGroupAdder(union.New(newCertificates(ca), bearertoken.New(tokens)))
}

// NewCertificateAuthenticator accepts a client certificate of ca.
func NewCertificateAuthenticator(ca dynamiccertificates.CAContentProvider) authenticator.Request {
	return group.NewAuthenticatedGroupAdder(newCertificates(ca))
}

func newCertificates(ca dynamiccertificates.CAContentProvider) authenticator.Request {
	return x509.NewDynamic(ca.VerifyOptions, x509.CommonNameUserConversion)
}

// ErrRejected says that the API server knows a token not to be valid, rather than that it could not be asked.
var ErrRejected = errors.New("the token is not valid")

// NewTokenReviewer asks the API server about every token that it is given: keep its answers. It returns an ErrRejected
// for a token that is not valid, and a *MissingPermissionError if this process may not ask.
func NewTokenReviewer(local kubernetes.Interface, remedy string) authenticator.Token {
	return tokenReviewer{local: local, remedy: remedy}
}

// tokenReviewer asks the API server whose token it is.
type tokenReviewer struct {
	local  kubernetes.Interface
	remedy string
}

// AuthenticateToken implements authenticator.Token.
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
