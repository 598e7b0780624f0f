package liqochart

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
)

// PortsV0 are the ports of the components of Liqo v0.x, which share one loopback.
type PortsV0 struct {
	Webhook, Health, Auth, IPAM int
}

// WebhookSecretV0 has the certificate of the webhook, under the chart's name for it; AuthSecretV0 has the certificate
// of the authentication service.
const (
	WebhookSecretV0 = WebhookCerts
	AuthSecretV0    = "sandbox-auth-serving"
)

// KeepV0 is Keep for the chart of Liqo v0.x. It drops gateway and proxy, which need a kernel and a container image,
// discovery, and the webhook's certificate, which the sandbox issues itself.
func KeepV0(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	drop := []string{"liqo-gateway", "liqo-proxy", "liqo-discovery"}
	return slices.DeleteFunc(Keep(objects, false), func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" && slices.Contains(drop, o.GetName()) || o.GetName() == WebhookSecretV0
	})
}

// AdaptV0 is Adapt for the chart of Liqo v0.x: ports, webhooks with URLs, and a certificate of the authentication
// service from a Secret, where the chart runs openssl.
func AdaptV0(objects []*unstructured.Unstructured, ports PortsV0, ca []byte) error {
	for _, o := range objects {
		var err error
		switch o.GetKind() {
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			err = webhooksByURL(o, ports.Webhook, ca)
		case "Deployment":
			// A new pod needs the ports of the pod that it replaces.
			err = errors.Join(unstructured.SetNestedStringMap(o.Object, map[string]string{"type": "Recreate"}, "spec", "strategy"),
				editPod(o, func(pod *corev1.PodSpec) { adaptPodV0(o.GetName(), pod, ports) }))
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

func adaptPodV0(deployment string, pod *corev1.PodSpec, ports PortsV0) {
	c := &pod.Containers[0]
	switch deployment {
	case "liqo-controller-manager":
		c.Args = append(c.Args, "--metrics-address=0", fmt.Sprintf("--health-probe-address=127.0.0.1:%d", ports.Health))
		replaceArg(c.Args, "--kubelet-ipam-server=", fmt.Sprintf("127.0.0.1:%d", ports.IPAM))
		for i := range c.Ports {
			if c.Ports[i].Name == "healthz" {
				c.Ports[i].ContainerPort = int32(ports.Health)
			}
		}
	case "liqo-auth":
		pod.InitContainers = nil
		pod.Volumes[0].VolumeSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: AuthSecretV0}}
		c.VolumeMounts[0].MountPath = "/tmp/certs"
		replaceArg(c.Args, "--address=", fmt.Sprintf("127.0.0.1:%d", ports.Auth))
		c.Args = append(c.Args, "--cert-path=/tmp/certs/tls.crt", "--key-path=/tmp/certs/tls.key")
	case "liqo-network-manager":
		c.Env = append(c.Env, corev1.EnvVar{Name: binaries.IPAMPortVariable, Value: fmt.Sprint(ports.IPAM)})
	}
}
