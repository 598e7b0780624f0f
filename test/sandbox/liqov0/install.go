package liqov0

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/liqochart"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/nodeagent"
)

const (
	// fieldOwner is the field owner of Liqo's objects.
	fieldOwner = "sandbox"
	// startTimeout bounds each wait of a start.
	startTimeout = 3 * time.Minute
	// podCIDR is the pod range of every cluster, so that Liqo remaps the ranges of the other clusters.
	podCIDR = "10.244.0.0/16"
	// simulatedPods is the part of podCIDR for simulated pods.
	simulatedPods = "10.244.4.1/22"
)

// chartValues returns the Helm values. They do not change the image of the virtual kubelet.
func (c *Cluster) chartValues() map[string]any {
	off := map[string]any{"enable": false}
	args := []any{}
	for _, arg := range c.KubeletArgs {
		args = append(args, arg)
	}
	return map[string]any{
		"tag": binaries.LiqoV0Version,
		"common": map[string]any{
			"nodeSelector": map[string]any{nodeagent.NodeLabel: "true"},
			"tolerations":  []any{map[string]any{"key": nodeagent.Taint, "operator": "Exists"}},
		},
		"apiServer":      map[string]any{"address": c.plane.URL()},
		"storage":        off,
		"virtualKubelet": map[string]any{"extra": map[string]any{"args": args}},
		"telemetry":      off,
		"metricAgent":    off,
		"webhook":        map[string]any{"port": c.ports.Webhook},
		"discovery":      map[string]any{"config": map[string]any{"clusterIDOverride": c.ID(), "clusterName": c.Name}},
		"auth": map[string]any{
			"service": map[string]any{"type": "ClusterIP"},
			"config":  map[string]any{"addressOverride": "127.0.0.1", "portOverride": fmt.Sprint(c.ports.Auth)},
		},
		"networkManager": map[string]any{"config": map[string]any{"podCIDR": podCIDR, "serviceCIDR": c.serviceCIDR()}},
		"gateway": map[string]any{"service": map[string]any{
			// The address that the gateway would write on the Service.
			"type": "NodePort", "annotations": map[string]any{"net.liqo.io/gatewayNodeIP": "127.0.0.1"},
		}},
	}
}

// installLiqo applies the CRDs, the chart, and the Secrets that the chart's hooks and the gateway would create.
func (c *Cluster) installLiqo(ctx context.Context) error {
	source, err := binaries.LiqoSource(ctx, binaries.LiqoV0Version)
	if err != nil {
		return err
	}
	if err := c.installCRDs(ctx, source); err != nil {
		return err
	}
	// Created only now: its mapper reads discovery once for each group.
	if c.Client, err = client.New(c.Config, client.Options{}); err != nil {
		return err
	}
	for _, port := range []*int{&c.ports.Webhook, &c.ports.Health, &c.ports.Auth, &c.ports.IPAM} {
		if *port, err = c.federation.ports.Free(); err != nil {
			return err
		}
	}
	if err := c.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: liqochart.Namespace}}); err != nil {
		return err
	}
	if err := c.createSecrets(ctx); err != nil {
		return err
	}
	rendered, err := liqochart.Render(source, c.chartValues())
	if err != nil {
		return err
	}
	rendered = liqochart.KeepV0(rendered)
	if err := liqochart.AdaptV0(rendered, c.ports, c.plane.CA()); err != nil {
		return err
	}
	if err := liqochart.Apply(ctx, c.Client, fieldOwner, rendered); err != nil {
		return fmt.Errorf("install Liqo: %w", err)
	}
	return nil
}

// installCRDs applies the CRDs and waits until they are served.
func (c *Cluster) installCRDs(ctx context.Context, source string) error {
	crds, err := liqochart.CRDs(source)
	if err != nil {
		return err
	}
	cl, err := client.New(c.Config, client.Options{})
	if err != nil {
		return err
	}
	if err := liqochart.Apply(ctx, cl, fieldOwner, crds); err != nil {
		return fmt.Errorf("install Liqo's CRDs: %w", err)
	}
	for _, crd := range crds {
		if err := served(ctx, cl, crd.GetName()); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) createSecrets(ctx context.Context) error {
	secrets := []*corev1.Secret{{
		// The gateway would generate it (pkg/liqonet/tunnel/wireguard): the network manager sends the public key to
		// peers.
		ObjectMeta: metav1.ObjectMeta{Name: "wireguard-pubkey", Labels: map[string]string{"net.liqo.io/key": "wireguard"}},
		StringData: map[string]string{"publicKey": strings.Repeat("A", 43) + "="},
	}}
	for _, name := range []string{liqochart.WebhookSecretV0, liqochart.AuthSecretV0} {
		pair, err := c.plane.NewServingCert(name, "127.0.0.1", "localhost")
		if err != nil {
			return err
		}
		secrets = append(secrets, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key},
		})
	}
	for _, secret := range secrets {
		secret.Namespace = liqochart.Namespace
		if err := c.Client.Create(ctx, secret); err != nil {
			return err
		}
	}
	return nil
}

// served waits until the API server serves a CRD.
func served(ctx context.Context, cl client.Client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return poll(ctx, func(ctx context.Context) error {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		if err := cl.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		for _, condition := range conditions {
			if of, ok := condition.(map[string]any); ok && of["type"] == "Established" && of["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("the CRD %s is not served", name)
	})
}

// WaitLiqo waits until every Deployment of Liqo is available, with its newest pods.
func (c *Cluster) WaitLiqo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return poll(ctx, func(ctx context.Context) error {
		var list appsv1.DeploymentList
		if err := c.Client.List(ctx, &list, client.InNamespace(liqochart.Namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if err := c.available(&list.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *Cluster) available(d *appsv1.Deployment) error {
	if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < *d.Spec.Replicas ||
		d.Status.Replicas > *d.Spec.Replicas || d.Status.AvailableReplicas < *d.Spec.Replicas {
		return fmt.Errorf("%s: %d of %d replicas available\nlast lines of its log:\n%s",
			d.Name, d.Status.AvailableReplicas, *d.Spec.Replicas, c.Log(d.Name, 15))
	}
	return nil
}
