package liqov0

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/liqochart"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/nodeagent"
)

// Apply applies files of deploy/ as `kubectl apply --server-side` does. Deployments run on the node for the cluster's
// components.
func (c *Cluster) Apply(ctx context.Context, files ...string) error {
	for _, file := range files {
		objects, err := liqochart.ParseFile(filepath.Join(binaries.ProductRoot(), "deploy", file))
		if err != nil {
			return err
		}
		for _, o := range objects {
			if o.GetKind() != "Deployment" {
				continue
			}
			if err := toHost(o); err != nil {
				return fmt.Errorf("deploy/%s: %w", file, err)
			}
		}
		if err := liqochart.Apply(ctx, c.Client, fieldOwner+"-"+filepath.Base(file), objects); err != nil {
			return fmt.Errorf("deploy/%s: %w", file, err)
		}
	}
	return nil
}

func toHost(o *unstructured.Unstructured) error {
	pod := []string{"spec", "template", "spec"}
	tolerations := []any{map[string]any{"key": nodeagent.Taint, "operator": string(corev1.TolerationOpExists)}}
	return errors.Join(
		unstructured.SetNestedStringMap(o.Object, map[string]string{nodeagent.NodeLabel: "true"}, append(pod, "nodeSelector")...),
		unstructured.SetNestedSlice(o.Object, tolerations, append(pod, "tolerations")...),
	)
}

// Address waits until a Deployment is available, and returns the address of a named port of one of its pods.
func (c *Cluster) Address(ctx context.Context, namespace, deployment, port string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var address string
	err := poll(ctx, func(ctx context.Context) error {
		var d appsv1.Deployment
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: deployment}, &d); err != nil {
			return err
		}
		if err := c.available(&d); err != nil {
			return err
		}
		for _, pod := range c.agent.Components()[deployment] {
			if here := c.agent.HostPort(pod, port); here != 0 {
				address = fmt.Sprintf("127.0.0.1:%d", here)
				return nil
			}
		}
		return fmt.Errorf("no pod of %s/%s serves port %s", namespace, deployment, port)
	})
	return address, err
}
