package untrusted

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfigField is the key of the kubeconfig in Liqo's Secrets since v1.0 (pkg/consts). Secrets of v0.x have its
// parts.
const kubeconfigField = "kubeconfig"

// AnyProxy stands for every URL of a proxy.
const AnyProxy = "*"

// AddressError is the error of a rejected kubeconfig.
type AddressError struct{ Problem string }

// Error implements error.
func (e *AddressError) Error() string { return e.Problem }

// Config returns the connection to a provider, which Liqo reads from a Secret. It returns an AddressError for a
// kubeconfig that is rejected: the peer may have written the Secret. The check is before Liqo's read, because that
// reads the files that the kubeconfig names.
func Config(secret *corev1.Secret, proxies []string, read func(*corev1.Secret) (*rest.Config, error)) (*rest.Config, error) {
	if kubeconfig, there := secret.Data[kubeconfigField]; there {
		if err := checkInline(kubeconfig); err != nil {
			return nil, err
		}
	}
	// For providers at AWS, Liqo adds a file with a token that it has made itself
	// (pkg/identityManager/tokenManager.go).
	config, err := read(secret)
	if err != nil {
		return nil, err
	}
	return config, checkAddress(config, proxies)
}

// checkInline rejects a kubeconfig whose credentials are not in it: it could name any file of this process, also the
// token of its ServiceAccount, and a command would run here.
func checkInline(kubeconfig []byte) error {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return &AddressError{"the kubeconfig of the provider cannot be read: " + Text(err.Error())}
	}
	for _, user := range config.AuthInfos {
		inline := clientcmdapi.AuthInfo{
			ClientCertificateData: user.ClientCertificateData, ClientKeyData: user.ClientKeyData, Token: user.Token,
			Extensions: user.Extensions,
		}
		if !reflect.DeepEqual(inline, *user) {
			return &AddressError{"the kubeconfig of the provider has user fields other than client-certificate-data, client-key-data " +
				"and token: files, commands, passwords and other identities are not allowed"}
		}
	}
	for _, cluster := range config.Clusters {
		if cluster.CertificateAuthority != "" {
			return &AddressError{"the kubeconfig of the provider names a file (certificate-authority): set " +
				"certificate-authority-data instead"}
		}
	}
	return nil
}

// checkAddress returns an AddressError if the address in a provider's kubeconfig may not be its API server. The
// provider writes both addresses into the status of its ResourceSlice, from where Liqo copies them (v1.2.0,
// pkg/liqo-controller-manager/authentication/forge/kubeconfig.go). Liqo's own URLs of API servers begin with https://
// (pkg/utils/apiserver); they may have a path, as Rancher's do. Only the given proxies may be used.
func checkAddress(config *rest.Config, proxies []string) error {
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return &AddressError{"status.authParams.apiServer of the provider's ResourceSlice is not valid: " + Text(err.Error())}
	}
	const must = "status.authParams.apiServer of the provider's ResourceSlice %s: the provider must set it to the https URL of its " +
		"API server (apiServer.address of its Liqo)"
	switch {
	case host.Scheme != "https":
		return &AddressError{fmt.Sprintf(must, "is not an https URL")}
	case host.User != nil:
		return &AddressError{fmt.Sprintf(must, "contains a user name")}
	case config.Insecure:
		return &AddressError{"the kubeconfig of the provider does not verify certificates (insecure-skip-tls-verify)"}
	case config.Proxy == nil || slices.Contains(proxies, AnyProxy):
		return nil
	}
	proxy, err := config.Proxy(&http.Request{URL: host})
	if err != nil {
		return &AddressError{"status.authParams.proxyURL of the provider's ResourceSlice is not valid"}
	}
	if proxy != nil && !slices.ContainsFunc(proxies, func(allowed string) bool { return sameURL(allowed, proxy) }) {
		return &AddressError{fmt.Sprintf("status.authParams.proxyURL of the provider's ResourceSlice is %q, which is not allowed "+
			"(--provider-proxy-url)", Cut(proxy.Redacted(), maxTarget))}
	}
	return nil
}

func sameURL(text string, as *url.URL) bool {
	u, err := url.Parse(text)
	return err == nil && u.String() == as.String()
}
