package sandbox

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/liqochart"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/nodeagent"
)

// Address ranges of every cluster. Pod and external ranges are the same everywhere, so that Liqo has to remap them.
const (
	podCIDR      = "10.244.0.0/16"
	externalCIDR = "10.70.0.0/16"
	internalCIDR = "10.80.0.0/16"
)

// fieldOwner is the field owner of objects that the sandbox applies.
const fieldOwner = "sandbox"

// Classes that every cluster offers to its consumers.
const (
	// StorageClass exists without a provisioner: volumes are created by hand.
	StorageClass = "standard"
	// IngressClass and LoadBalancerClass are only names.
	IngressClass      = "nginx"
	LoadBalancerClass = "metallb"
)

// liqoObjects are the objects that every cluster installs.
type liqoObjects struct {
	source string
	crds   []*unstructured.Unstructured
}

func loadLiqo(ctx context.Context, version string) (liqoObjects, error) {
	source, err := binaries.LiqoSource(ctx, version)
	if err != nil {
		return liqoObjects{}, err
	}
	crds, err := liqochart.CRDs(source)
	return liqoObjects{source: source, crds: crds}, err
}

// chartValues returns the Helm values of the cluster.
func (c *Cluster) chartValues() map[string]any {
	name, version := splitImage(c.sandbox.opts.Image)
	labels := map[string]any{"site": c.Name}
	for k, v := range c.sandbox.opts.ClusterLabels[c.Name] {
		labels[k] = v
	}
	args := []any{}
	if c.Role == RoleConsumer {
		for _, arg := range c.sandbox.opts.ConsumerArgs {
			args = append(args, arg)
		}
	}
	if c.Role == RoleBroker {
		// Pods that reach the second hop already have the fields that API server support adds. If they were added
		// twice, the provider would reject the pods (422, duplicate environment variables).
		args = append(args, "--enable-apiserver-support=false")
	}
	selector, toleration := c.componentsNode()
	onNode := map[string]any{
		"nodeSelector": map[string]any{selector: "true"},
		"tolerations":  []any{map[string]any{"key": toleration, "operator": "Exists"}},
	}
	webhookPort := c.ports.Webhook
	if c.machineNetwork != nil {
		webhookPort = webhookDefaultPort
	}
	manager := []any{}
	if c.Role == RoleBroker && c.sandbox.opts.RemoteIPAM {
		manager = append(manager, "--ip-ctrl-workers=10") // As docs/install.md recommends.
	}
	off := map[string]any{"enabled": false}
	networking := map[string]any{"enabled": c.sandbox.opts.Networking}
	if c.node != nil {
		networking["gatewayTemplates"] = map[string]any{"wireguard": map[string]any{"implementation": "userspace"}}
	}
	return map[string]any{
		"tag":               c.sandbox.opts.Liqo,
		"common":            onNode,
		"apiServer":         map[string]any{"address": c.url()},
		"networking":        networking,
		"proxy":             map[string]any{"enabled": c.sandbox.opts.Networking, "replicas": 0},
		"telemetry":         off,
		"metricAgent":       off,
		"storage":           map[string]any{"enabled": true, "realStorageClassName": StorageClass},
		"webhook":           map[string]any{"port": webhookPort},
		"controllerManager": map[string]any{"pod": map[string]any{"extraArgs": manager}},
		"discovery":         map[string]any{"config": map[string]any{"clusterID": c.Name, "clusterLabels": labels}},
		"ipam": map[string]any{
			"podCIDR": podCIDR, "serviceCIDR": c.ServiceCIDR(),
			"externalCIDR": externalCIDR, "internalCIDR": internalCIDR,
		},
		"offloading": map[string]any{"reflection": map[string]any{
			"ingress": map[string]any{"ingressClasses": []any{map[string]any{"name": IngressClass, "default": true}}},
			"service": map[string]any{"loadBalancerClasses": []any{map[string]any{"name": LoadBalancerClass, "default": true}}},
		}},
		"virtualKubelet": map[string]any{
			"image": map[string]any{"name": name, "version": version},
			"extra": map[string]any{"args": args, "tolerations": onNode["tolerations"]},
		},
	}
}

// webhookDefaultPort is the value webhook.port of Liqo's chart.
const webhookDefaultPort = 9443

// componentsNode returns the label of the node on which Liqo's components and the broker run, and the key of its taint.
func (c *Cluster) componentsNode() (label, taint string) {
	if c.machineNetwork != nil {
		return machineLabel, localTaint
	}
	return nodeagent.NodeLabel, nodeagent.Taint
}

// installCRDs applies Liqo's CRDs and waits until they are served, because Liqo's components build their REST mapper
// only once, at start.
func (c *Cluster) installCRDs(ctx context.Context, crds []*unstructured.Unstructured) error {
	cl, err := client.New(c.Config, client.Options{})
	if err != nil {
		return err
	}
	if err := liqochart.Apply(ctx, cl, fieldOwner, crds); err != nil {
		return fmt.Errorf("install Liqo's CRDs: %w", err)
	}
	return c.waitServed(ctx, crds)
}

// waitServed waits until discovery serves the CRDs.
func (c *Cluster) waitServed(ctx context.Context, crds []*unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	disc := discovery.NewDiscoveryClient(c.Kube.Discovery().RESTClient())
	return poll(ctx, func(context.Context) error {
		served := map[string]bool{}
		_, lists, err := disc.ServerGroupsAndResources()
		if err != nil {
			return err
		}
		for _, l := range lists {
			for i := range l.APIResources {
				served[l.GroupVersion+"/"+l.APIResources[i].Name] = true
			}
		}
		for _, crd := range crds {
			if key := servedKey(crd); !served[key] {
				return fmt.Errorf("%s is not served yet", key)
			}
		}
		return nil
	})
}

// servedKey returns group/version/plural of a CRD's newest version.
func servedKey(crd *unstructured.Unstructured) string {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	version := versions[len(versions)-1].(map[string]any)["name"].(string)
	return group + "/" + version + "/" + plural
}
