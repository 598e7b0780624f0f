package distrust

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/client-go/rest"
)

// AnyProxy stands for every URL of a proxy.
const AnyProxy = "*"

// AddressError is the error of a kubeconfig that is not used.
type AddressError struct{ Problem string }

// Error implements error.
func (e *AddressError) Error() string { return e.Problem }

// CheckConfig returns an AddressError if the kubeconfig of a provider leads to what may not be its API server. The provider
// writes both addresses into the status of its ResourceSlice, from where Liqo copies them (v1.2.0,
// pkg/liqo-controller-manager/authentication/forge/kubeconfig.go). Liqo's own URLs of API servers begin with https://
// (pkg/utils/apiserver); they may have a path, as those of Rancher do. Only those proxies may be used that are given.
func CheckConfig(config *rest.Config, proxies []string) error {
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return &AddressError{"status.authParams.apiServer of the provider's ResourceSlice is not valid: " + Text(err.Error())}
	}
	const must = "status.authParams.apiServer of the provider's ResourceSlice %s: the provider must give the https URL of its " +
		"API server (apiServer.address of its Liqo)"
	switch {
	case host.Scheme != "https":
		return &AddressError{fmt.Sprintf(must, "is not of https")}
	case host.User != nil:
		return &AddressError{fmt.Sprintf(must, "has a user")}
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
