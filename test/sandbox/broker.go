package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/liqochart"
)

// BrokerComponent is the Deployment of the broker, and its namespace, in the
// broker cluster.
const BrokerComponent = "liqo-broker"

// CatalogComponent is the Deployment of the catalog, in the namespace of the
// broker.
const CatalogComponent = "liqo-broker-catalog"

// manifestNode is the name of the broker's Node in deploy/.
const manifestNode = "liqo-broker"

// BrokerNode returns the name of the broker's Node; "" if there is none.
func (s *Sandbox) BrokerNode() string { return s.opts.BrokerNode }

// servesBrokerNode reports whether the cluster has one Node for all of its providers.
func (c *Cluster) servesBrokerNode() bool {
	return c.Role == RoleBroker && c.sandbox.opts.BrokerNode != ""
}

// audited returns the namespaces whose ServiceAccounts are audited.
func (c *Cluster) audited() []string {
	if !c.servesBrokerNode() {
		return nil
	}
	return []string{BrokerComponent}
}

// AuditLog is the path of the audit log of the broker cluster's API server, while the sandbox runs. It has the requests
// by the ServiceAccounts of the broker's namespace: one audit.k8s.io/v1 Event in JSON a line.
func (s *Sandbox) AuditLog() string { return s.Cluster(Broker).plane.AuditLog() }

// installBroker installs the objects in deploy/ for the broker's cluster, before it peers with any provider.
func (c *Cluster) installBroker(ctx context.Context) error {
	manifests := []string{"crds", "guard.yaml", "virtual-kubelet-options.yaml", "broker.yaml"}
	if c.sandbox.opts.Catalog {
		manifests = append(manifests, "catalog.yaml")
	}
	if c.sandbox.opts.RemoteIPAM {
		manifests = append(manifests, "network-manager.yaml")
	}
	if err := c.ApplyManifests(ctx, manifests...); err != nil {
		return fmt.Errorf("install the broker: %w", err)
	}
	c.sandbox.say("%s: the broker is installed", c.Name)
	return nil
}

// waitBroker waits until the broker's Node is Ready.
func (c *Cluster) waitBroker(ctx context.Context) error {
	if !c.servesBrokerNode() {
		return nil
	}
	if err := c.WaitNodeReady(ctx, c.sandbox.opts.BrokerNode); err != nil {
		return err
	}
	c.sandbox.say("%s: node %s is Ready", c.Name, c.sandbox.opts.BrokerNode)
	if !c.sandbox.opts.Catalog {
		return nil
	}
	if _, err := c.sandbox.CatalogAddresses(ctx); err != nil {
		return err
	}
	c.sandbox.say("%s: the catalog serves https://%s", c.Name, c.sandbox.CatalogAddress())
	return nil
}

// CatalogAddresses waits until the replicas of the catalog are ready, and returns the address of each: HOST:PORT, with
// HTTPS unless Options.CatalogArgs configure otherwise.
func (s *Sandbox) CatalogAddresses(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	c := s.Cluster(Broker)
	var addresses []string
	err := poll(ctx, func(ctx context.Context) error {
		var d appsv1.Deployment
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: BrokerComponent, Name: CatalogComponent}, &d); err != nil {
			return err
		}
		if d.Status.AvailableReplicas < ptr.Deref(d.Spec.Replicas, 1) {
			return fmt.Errorf("%d of %d replicas of the catalog are available", d.Status.AvailableReplicas, ptr.Deref(d.Spec.Replicas, 1))
		}
		replicas, err := s.Replicas(Broker + "/" + CatalogComponent)
		if err != nil {
			return err
		}
		addresses = nil
		for _, replica := range replicas {
			address, err := s.Address(replica, "catalog")
			if err != nil {
				return err
			}
			addresses = append(addresses, address)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w\nlast lines of the catalog's log:\n%s", c.Name, err, c.tailLog(ctx, CatalogComponent))
	}
	return addresses, nil
}

// ApplyManifests applies files and directories of deploy/ as `kubectl apply --server-side` does, with three changes:
// the broker's Node has the name Options.BrokerNode, the broker also has Options.BrokerArgs, and Deployments run where
// Liqo's components do.
func (c *Cluster) ApplyManifests(ctx context.Context, names ...string) error {
	for _, name := range names {
		objects, err := readManifests(filepath.Join(binaries.ProductRoot(), "deploy", name))
		if err != nil {
			return err
		}
		var crds []*unstructured.Unstructured
		for _, o := range objects {
			if err := c.adaptManifest(o); err != nil {
				return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
			}
			if o.GetKind() == "CustomResourceDefinition" {
				crds = append(crds, o)
			}
		}
		// A field owner for each file: it changes objects of Liqo's chart, and keeps their other fields.
		if err := liqochart.Apply(ctx, c.Client, fieldOwner+"-"+filepath.Base(name), objects); err != nil {
			return fmt.Errorf("deploy/%s: %w", name, err)
		}
		if err := c.waitServed(ctx, crds); err != nil {
			return fmt.Errorf("deploy/%s: %w", name, err)
		}
	}
	return nil
}

// readManifests reads a file, or all files of a directory.
func readManifests(path string) ([]*unstructured.Unstructured, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return liqochart.ParseFile(path)
	}
	files, err := filepath.Glob(filepath.Join(path, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, file := range files {
		objects, err := liqochart.ParseFile(file)
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
	return out, nil
}

func (c *Cluster) adaptManifest(o *unstructured.Unstructured) error {
	if node := c.sandbox.opts.BrokerNode; node != "" {
		renameNode(o.Object, node)
	}
	if o.GetKind() == "VkOptionsTemplate" {
		if c.sandbox.opts.BrokerKubelet != "" {
			if err := unstructured.SetNestedField(o.Object, imageOther, "spec", "containerImage"); err != nil {
				return err
			}
		}
		args, _, err := unstructured.NestedStringSlice(o.Object, "spec", "extraArgs")
		if err != nil {
			return err
		}
		return unstructured.SetNestedStringSlice(o.Object, append(args, c.sandbox.opts.BrokerKubeletArgs...), "spec", "extraArgs")
	}
	if o.GetKind() == "ValidatingAdmissionPolicy" {
		return c.offerStorage(o)
	}
	if o.GetKind() != "Deployment" {
		return nil
	}
	pod := []string{"spec", "template", "spec"}
	label, taint := c.componentsNode()
	err := unstructured.SetNestedStringMap(o.Object, map[string]string{label: "true"}, append(pod, "nodeSelector")...)
	if err != nil {
		return err
	}
	tolerations := []any{map[string]any{"key": taint, "operator": string(corev1.TolerationOpExists)}}
	if err := unstructured.SetNestedSlice(o.Object, tolerations, append(pod, "tolerations")...); err != nil {
		return err
	}
	switch o.GetName() {
	case BrokerComponent:
		return appendArgs(o, append(pod, "containers"), c.sandbox.opts.BrokerArgs)
	case CatalogComponent:
		return appendArgs(o, append(pod, "containers"), c.sandbox.opts.CatalogArgs)
	}
	return nil
}

// offerStorage lets consumers have claims of the classes that BrokerArgs offers, as the chart's values do.
func (c *Cluster) offerStorage(o *unstructured.Unstructured) error {
	variables, _, err := unstructured.NestedSlice(o.Object, "spec", "variables")
	if err != nil {
		return err
	}
	for _, variable := range variables {
		v, ok := variable.(map[string]any)
		if !ok || v["name"] != "storageClasses" {
			continue
		}
		classes := []string{}
		for _, arg := range c.sandbox.opts.BrokerArgs {
			if class, is := strings.CutPrefix(arg, "--offer-storage-class="); is {
				classes = append(classes, strconv.Quote(strings.TrimSuffix(class, ";default")))
			}
		}
		v["expression"] = "[" + strings.Join(classes, ", ") + "]"
	}
	return unstructured.SetNestedSlice(o.Object, variables, "spec", "variables")
}

// appendArgs appends arguments to the first container's.
func appendArgs(o *unstructured.Unstructured, path, more []string) error {
	containers, _, err := unstructured.NestedSlice(o.Object, path...)
	if err != nil {
		return err
	}
	if len(containers) == 0 {
		return fmt.Errorf("no containers")
	}
	first, ok := containers[0].(map[string]any)
	if !ok {
		return fmt.Errorf("the first container is not an object")
	}
	args, _, err := unstructured.NestedStringSlice(first, "args")
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedStringSlice(first, append(args, more...), "args"); err != nil {
		return err
	}
	return unstructured.SetNestedSlice(o.Object, containers, path...)
}

// renameNode replaces the name of the broker's Node everywhere in a manifest: in arguments, in the resource names of
// roles, and in policies.
func renameNode(value any, node string) {
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			names, ok := child.([]any)
			expression, isText := child.(string)
			switch {
			case ok && key == "resourceNames":
				replace(names, manifestNode, node)
			case isText && key == "expression":
				v[key] = strings.NewReplacer(
					"['', '"+manifestNode+"']", "['', '"+node+"']", "'system:node:"+manifestNode+"'", "'system:node:"+node+"'",
				).Replace(expression)
			default:
				renameNode(child, node)
			}
		}
	case []any:
		replace(v, "--broker-node="+manifestNode, "--broker-node="+node)
		for _, child := range v {
			renameNode(child, node)
		}
	}
}

func replace(list []any, from, to string) {
	for i := range list {
		if list[i] == from {
			list[i] = to
		}
	}
}

// WaitVirtualKubelet waits until the virtual kubelet of a VirtualNode of that provider runs and holds its lease, with
// or without a Node of its own.
func (c *Cluster) WaitVirtualKubelet(ctx context.Context, name, provider string) error {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	namespace := tenantNamespace(provider)
	err := poll(ctx, func(ctx context.Context) error {
		var d appsv1.Deployment
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "vk-" + name}, &d); err != nil {
			return err
		}
		if d.Status.AvailableReplicas == 0 {
			return fmt.Errorf("deployment vk-%s is not available", name)
		}
		var lease coordinationv1.Lease
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &lease); err != nil {
			return err
		}
		if ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
			return fmt.Errorf("no replica of vk-%s has been elected", name)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w\nlast lines of the virtual kubelet's log:\n%s", c.Name, err, c.tailLog(ctx, "vk-"+name))
	}
	return nil
}

// BrokerLeader returns the replica of the broker (CLUSTER/POD) that leads.
func (s *Sandbox) BrokerLeader(ctx context.Context) (string, error) {
	replicas, err := s.Replicas(Broker + "/" + BrokerComponent)
	if err != nil {
		return "", err
	}
	var lease coordinationv1.Lease
	key := client.ObjectKey{Namespace: BrokerComponent, Name: BrokerComponent}
	if err := s.Cluster(Broker).Client.Get(ctx, key, &lease); err != nil {
		return "", err
	}
	// An identity begins with the name of the pod.
	pod, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	if !slices.Contains(replicas, Broker+"/"+pod) {
		return "", fmt.Errorf("lease %s is held by %q, not by one of %v", key, pod, replicas)
	}
	return Broker + "/" + pod, nil
}
