package liqov0

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/liqochart"
)

// peerTimeout bounds a peering.
const peerTimeout = 3 * time.Minute

// clusterIDLabel is the label with the id of the cluster that an object is for (pkg/discovery in v0.9.4).
const clusterIDLabel = "discovery.liqo.io/cluster-id"

// Peer writes the objects that `liqoctl peer out-of-band` writes (pkg/liqoctl/peeroob in v0.9.4): the token of the
// provider and a ForeignCluster. It waits for the virtual node.
func (f *Federation) Peer(ctx context.Context, consumer, provider string) error {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	from, to := f.Cluster(consumer), f.Cluster(provider)
	if err := from.addForeignCluster(ctx, to); err != nil {
		return fmt.Errorf("peer %s with %s: %w", consumer, provider, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, pair := range [][2]*Cluster{{from, to}, {to, from}} {
		group.Go(func() error { return pair[0].connectTunnel(ctx, pair[1]) })
	}
	group.Go(func() error { return from.waitNode(ctx, from.VirtualNode(to)) })
	if err := group.Wait(); err != nil {
		return fmt.Errorf("peer %s with %s: %w\n%s\n%s", consumer, provider, err,
			from.Log("liqo-controller-manager", 15), to.Log("liqo-controller-manager", 15))
	}
	return nil
}

// addForeignCluster creates a ForeignCluster for another cluster, with an outgoing peering.
func (c *Cluster) addForeignCluster(ctx context.Context, remote *Cluster) error {
	var token corev1.Secret
	// The authentication service creates it after its start.
	if err := poll(ctx, func(ctx context.Context) error {
		return remote.Client.Get(ctx, client.ObjectKey{Namespace: liqochart.Namespace, Name: "auth-token"}, &token)
	}); err != nil {
		return err
	}
	if err := c.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: liqochart.Namespace, Name: "remote-token-" + remote.ID(),
			Labels: map[string]string{clusterIDLabel: remote.ID(), "discovery.liqo.io/auth-token": ""},
		},
		Data: map[string][]byte{"token": token.Data["token"]},
	}); err != nil {
		return err
	}
	return c.create(ctx, object("discovery.liqo.io/v1alpha1", "ForeignCluster", metav1.ObjectMeta{
		Name: remote.Name, Labels: map[string]string{clusterIDLabel: remote.ID()},
	}, map[string]any{
		"peeringType":            "OutOfBand",
		"clusterIdentity":        map[string]any{"clusterID": remote.ID(), "clusterName": remote.Name},
		"foreignAuthUrl":         fmt.Sprintf("https://127.0.0.1:%d", remote.ports.Auth),
		"outgoingPeeringEnabled": "Yes", "incomingPeeringEnabled": "Auto", "networkingEnabled": "Yes",
		"insecureSkipTLSVerify": true,
	}))
}

// create creates an object, and retries while Liqo's webhook does not answer: the controller manager reports ready
// before the webhook is.
func (c *Cluster) create(ctx context.Context, o client.Object) error {
	var refused error
	unavailable := poll(ctx, func(ctx context.Context) error {
		err := client.IgnoreAlreadyExists(c.Client.Create(ctx, o))
		if apierrors.IsInternalError(err) {
			return err
		}
		refused = err
		return nil
	})
	return errors.Join(unavailable, refused)
}

func object(version, kind string, meta metav1.ObjectMeta, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace(meta.Namespace)
	o.SetName(meta.Name)
	o.SetLabels(meta.Labels)
	return o
}

// waitNode waits until a node is ready and has capacity for pods.
func (c *Cluster) waitNode(ctx context.Context, name string) error {
	return poll(ctx, func(ctx context.Context) error {
		var node corev1.Node
		if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return fmt.Errorf("%w\n%s", err, c.foreignClusters(ctx))
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue &&
				!node.Status.Allocatable.Cpu().IsZero() {
				return nil
			}
		}
		return fmt.Errorf("node %s is not ready: %v\n%s", name, node.Status.Conditions, c.Log("vk-"+name, 15))
	})
}

// foreignClusters describes the peerings of a cluster.
func (c *Cluster) foreignClusters(ctx context.Context) string {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("discovery.liqo.io/v1alpha1")
	list.SetKind("ForeignClusterList")
	if err := c.Client.List(ctx, list); err != nil {
		return err.Error()
	}
	var text string
	for i := range list.Items {
		status, err := json.Marshal(list.Items[i].Object["status"])
		if err != nil {
			return err.Error()
		}
		text += fmt.Sprintf("ForeignCluster %s: %s\n", list.Items[i].GetName(), status)
	}
	return text
}

// Offload writes the object that `liqoctl offload namespace --pod-offloading-strategy=Remote` writes
// (pkg/liqoctl/offload), and waits until pods created in the namespace would be offloaded.
func (c *Cluster) Offload(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	offloading := object("offloading.liqo.io/v1alpha1", "NamespaceOffloading",
		metav1.ObjectMeta{Namespace: namespace, Name: "offloading"}, map[string]any{
			"podOffloadingStrategy": "Remote", "namespaceMappingStrategy": "DefaultName",
			"clusterSelector": map[string]any{"nodeSelectorTerms": []any{}},
		})
	if err := c.create(ctx, offloading); err != nil {
		return fmt.Errorf("offload namespace %s of %s: %w", namespace, c.Name, err)
	}
	return poll(ctx, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(offloading), offloading); err != nil {
			return err
		}
		phase, _, _ := unstructured.NestedString(offloading.Object, "status", "offloadingPhase")
		if phase != "Ready" {
			return fmt.Errorf("namespace %s of %s is offloaded: %q", namespace, c.Name, phase)
		}
		return nil
	})
}

// connectTunnel waits for the TunnelEndpoint of another cluster, and writes that it is connected, as the gateway does.
func (c *Cluster) connectTunnel(ctx context.Context, remote *Cluster) error {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"connection":{"status":"Connected"}}}`))
	return poll(ctx, func(ctx context.Context) error {
		tunnel, err := c.Tunnel(ctx, remote)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, c.Log("liqo-network-manager", 15))
		}
		return c.Client.Status().Patch(ctx, tunnel, patch)
	})
}

// Tunnel returns the TunnelEndpoint of another cluster, which has the ranges to which its addresses are remapped here.
func (c *Cluster) Tunnel(ctx context.Context, remote *Cluster) (*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("net.liqo.io/v1alpha1")
	list.SetKind("TunnelEndpointList")
	if err := c.Client.List(ctx, list, client.MatchingLabels{"clusterID": remote.ID()}); err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("%s has no TunnelEndpoint of %s", c.Name, remote.Name)
	}
	return &list.Items[0], nil
}

// TenantNamespace returns the namespace of the peering with another cluster (pkg/tenantNamespace in v0.9.4).
func (c *Cluster) TenantNamespace(ctx context.Context, remote *Cluster) (string, error) {
	namespaces, err := c.Kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{
		LabelSelector: clusterIDLabel + "=" + remote.ID() + ",discovery.liqo.io/tenant-namespace=true",
	})
	if err != nil {
		return "", err
	}
	if len(namespaces.Items) != 1 {
		return "", fmt.Errorf("%s has %d tenant namespaces of %s", c.Name, len(namespaces.Items), remote.Name)
	}
	return namespaces.Items[0].Name, nil
}
