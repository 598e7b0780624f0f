// Command kubeproxy is Kubernetes' kube-proxy. It is not a part of the command
// kube, because only a sandbox with packets needs it.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
)

func main() {
	os.Exit(cli.Run(app.NewProxyCommand()))
}
