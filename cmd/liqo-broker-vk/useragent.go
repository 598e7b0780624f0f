package main

import (
	"fmt"

	"github.com/liqotech/liqo/pkg/utils"
	"k8s.io/client-go/rest"
)

// userAgent is how a role calls itself towards API servers, which note it in their audit logs and metrics. Its form is
// that of Kubernetes' own components.
func (b build) userAgent(role string) string {
	return fmt.Sprintf("liqo-broker-vk/%s (%s) %.12s/%s", b.Version, b.Platform, b.Commit, role)
}

// connectionConfig reads a kubeconfig, or with none that can be read what a pod is given, for a role of this program.
func connectionConfig(kubeconfig, role string) (*rest.Config, error) {
	config, err := utils.GetRestConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = thisBuild().userAgent(role)
	return config, nil
}
