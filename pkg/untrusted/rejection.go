package untrusted

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
)

// Rejected reports whether the error of a request shows that the provider is alive, and rejects this cluster's identity
// or has an unexpected identity: 401, 403 or 429, or a TLS handshake that failed by a certificate, on either side.
func Rejected(err error) bool {
	if status := kerrors.APIStatus(nil); errors.As(err, &status) {
		switch status.Status().Code {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
			return true
		}
		return false
	}
	return certificateFails(err)
}

// certificateFails reports whether a TLS handshake failed because one side does not trust the other's certificate, or
// because the other side requires a certificate and got none.
func certificateFails(err error) bool {
	verification, authority := (*tls.CertificateVerificationError)(nil), x509.UnknownAuthorityError{}
	host, invalid := x509.HostnameError{}, x509.CertificateInvalidError{}
	if errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid) {
		return true
	}
	if err == nil {
		return false
	}
	// The type of an alert is not exported (crypto/tls, alert.go).
	_, alert, found := strings.Cut(err.Error(), "remote error: tls: ")
	if !found {
		return false
	}
	for _, about := range []string{
		"bad certificate", "unsupported certificate", "revoked certificate", "expired certificate", "unknown certificate",
		"access denied", "certificate required",
	} {
		if strings.HasPrefix(alert, about) {
			return true
		}
	}
	return false
}
