// Command kubectl is Kubernetes' own kubectl, for users of a sandbox and for the commands in the documentation.
package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	// As k8s.io/kubernetes/cmd/kubectl: the command prints its errors itself.
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
