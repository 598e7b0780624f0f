package build

import (
	"fmt"

	"github.com/liqotech/liqo/pkg/utils"
	"k8s.io/client-go/rest"
)

// UserAgent returns the user agent of a role in the form that Kubernetes' own components use. API servers record it in
// their audit logs and metrics.
func (b Info) UserAgent(role string) string {
	return fmt.Sprintf("liqo-broker-vk/%s (%s) %.12s/%s", b.Version, b.Platform, b.Commit, role)
}

// RESTConfig reads a kubeconfig, or the configuration of the pod if there is none, for a role of this program.
func (b Info) RESTConfig(kubeconfig, role string) (*rest.Config, error) {
	config, err := utils.GetRestConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = b.UserAgent(role)
	return config, nil
}
