package flags

import (
	"github.com/spf13/pflag"

	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
)

// Kubelet are the flags of the kubelet API that broker and virtual kubelet share.
type Kubelet struct {
	ClientCAFile      string
	CertDir           string
	AuthorizationMode string
}

// NewKubelet returns the defaults.
func NewKubelet() Kubelet {
	return Kubelet{CertDir: "/tmp/certs", AuthorizationMode: string(kubeletapi.AuthorizationWebhook)}
}

// Install adds the flags. also names the other uses of the CA.
func (o *Kubelet) Install(f *pflag.FlagSet, also string) {
	f.StringVar(&o.AuthorizationMode, "kubelet-authorization-mode", o.AuthorizationMode,
		"How callers of the kubelet API are authorised: Webhook (the API server, by SubjectAccessReview) or "+
			"AlwaysAllow (every authenticated caller may do everything)")
	f.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile,
		"The CA of the client certificates accepted by the kubelet API"+also+"; by default the one published in the "+
			"ConfigMap kube-system/extension-apiserver-authentication")
	f.StringVar(&o.CertDir, "cert-dir", o.CertDir, "The directory where the serving certificate is kept")
}

// Validate adds the faults.
func (o *Kubelet) Validate(f *Faults, port uint16) {
	f.OneOf("--kubelet-authorization-mode", o.AuthorizationMode,
		string(kubeletapi.AuthorizationWebhook), string(kubeletapi.AuthorizationAlwaysAllow))
	f.Require(o.CertDir, "--cert-dir", "give a writable directory")
	f.When(port == 0, "--listen-port=0", "use a port from 1 to 65535")
}
