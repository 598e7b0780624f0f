package kubeletapi

import (
	"context"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// URL returns the address of a Node's kubelet.
func URL(node *corev1.Node) string {
	return fmt.Sprintf("https://%s:%d", node.Status.Addresses[0].Address, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
}

// Caller returns the configuration of a client that calls a kubelet directly: it has the given credentials, and does
// not verify the server.
func Caller(credentials *rest.Config) *rest.Config {
	config := rest.CopyConfig(credentials)
	config.Insecure, config.CAData, config.CAFile = true, nil, ""
	return config
}

// Ask sends one request to a kubelet with the credentials of config, and returns the status and the body of the answer.
func Ask(ctx context.Context, config *rest.Config, method, url string) (status int, body string, err error) {
	httpClient, err := rest.HTTPClientFor(Caller(config))
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}
