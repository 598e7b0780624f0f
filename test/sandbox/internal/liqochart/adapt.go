package liqochart

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// HostPorts are the ports of Liqo's components, which share one loopback.
type HostPorts struct {
	Webhook, WebhookHealth, ControllerManagerHealth, IPAM int
}

// WebhookSecret holds the certificate that Liqo's webhook serves.
const WebhookSecret = "sandbox-webhook-serving"

// Adapt makes only the changes that rendered objects need for host processes: separate ports instead of those that
// every pod may use, webhooks with URLs, because the API server cannot reach Services without kube-proxy, and the
// webhook's certificate from another Secret than WebhookCerts. It returns the objects to apply.
func Adapt(objects []*unstructured.Unstructured, ports HostPorts, ca []byte) ([]*unstructured.Unstructured, error) {
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetName() == WebhookCerts })
	for _, o := range objects {
		var err error
		switch o.GetKind() {
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			err = webhooksByURL(o, ports.Webhook, ca)
		case "Deployment":
			err = adaptDeployment(o, ports)
		case "WgGatewayServerTemplate", "WgGatewayClientTemplate":
			err = adaptGateway(o)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return objects, nil
}

func webhooksByURL(o *unstructured.Unstructured, port int, ca []byte) error {
	hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
	if err != nil {
		return err
	}
	for _, h := range hooks {
		hook := h.(map[string]any)
		path, _, err := unstructured.NestedString(hook, "clientConfig", "service", "path")
		if err != nil {
			return err
		}
		hook["clientConfig"] = map[string]any{
			"url":      fmt.Sprintf("https://127.0.0.1:%d%s", port, path),
			"caBundle": base64.StdEncoding.EncodeToString(ca),
		}
	}
	return unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
}

func adaptDeployment(o *unstructured.Unstructured, ports HostPorts) error {
	return editPod(o, func(pod *corev1.PodSpec) { adaptPod(o.GetName(), pod, ports) })
}

// editPod changes the pods of a Deployment.
func editPod(o *unstructured.Unstructured, edit func(*corev1.PodSpec)) error {
	raw, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil {
		return err
	}
	var pod corev1.PodSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &pod); err != nil {
		return err
	}
	edit(&pod)
	changed, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod)
	if err != nil {
		return err
	}
	return unstructured.SetNestedMap(o.Object, changed, "spec", "template", "spec")
}

func adaptPod(deployment string, pod *corev1.PodSpec, ports HostPorts) {
	c := &pod.Containers[0]
	var health int
	switch deployment {
	case "liqo-controller-manager":
		health = ports.ControllerManagerHealth
		c.Args = append(c.Args, "--metrics-address=0", fmt.Sprintf("--health-probe-address=127.0.0.1:%d", health))
		replaceArg(c.Args, "--ipam-server=", fmt.Sprintf("127.0.0.1:%d", ports.IPAM))
	case "liqo-webhook":
		health = ports.WebhookHealth
		c.Args = append(c.Args, "--metrics-address=0", fmt.Sprintf("--health-probe-address=127.0.0.1:%d", health))
		c.Args = slices.DeleteFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--secret-name=") })
		pod.Volumes[0].VolumeSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: WebhookSecret}}
		c.VolumeMounts[0].MountPath = "/tmp/k8s-webhook-server/serving-certs"
	case "liqo-crd-replicator":
		c.Args = append(c.Args, "--metrics-address=0")
	case "liqo-ipam":
		replaceArg(c.Args, "--port=", fmt.Sprint(ports.IPAM))
		c.ReadinessProbe.GRPC.Port = int32(ports.IPAM)
	}
	c.LivenessProbe = nil
	for i := range c.Ports {
		if c.Ports[i].Name == "healthz" {
			c.Ports[i].ContainerPort = int32(health)
		}
	}
}

// gatewayKeys is the directory of a gateway's keys for its WireGuard container. A process can have volumes only below
// /run.
const gatewayKeys = "/run/wireguard-keys"

// adaptGateway changes the containers of a gateway for host processes: they have no volume /ipc, which only gateways
// with several replicas use, and another directory for the keys of WireGuard.
func adaptGateway(o *unstructured.Unstructured) error {
	path := []string{"spec", "template", "spec", "deployment", "spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(o.Object, path...)
	if err != nil {
		return err
	}
	for _, item := range containers {
		container := item.(map[string]any)
		var mounts []any
		for _, item := range container["volumeMounts"].([]any) {
			mount := item.(map[string]any)
			if mount["name"] == "wireguard-config" {
				mount["mountPath"] = gatewayKeys
				container["args"] = append(container["args"].([]any), "--keys-dir="+gatewayKeys)
				mounts = append(mounts, mount)
			}
		}
		if len(mounts) == 0 {
			delete(container, "volumeMounts") // Liqo's rendering of the template panics at null (external-network/utils/template.go).
			continue
		}
		container["volumeMounts"] = mounts
	}
	return unstructured.SetNestedSlice(o.Object, containers, path...)
}

func replaceArg(args []string, prefix, value string) {
	for i := range args {
		if strings.HasPrefix(args[i], prefix) {
			args[i] = prefix + value
		}
	}
}
