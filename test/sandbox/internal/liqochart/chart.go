// Package liqochart installs Liqo's own Helm chart into a cluster of the sandbox: all CRDs, RBAC, webhooks and
// Deployments as the chart renders them, except objects that need a kernel or a container engine, and with the few
// changes that pods on a shared loopback need.
package liqochart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespace that Liqo is installed in.
const Namespace = "liqo"

// Render renders the chart in Liqo's source tree with the given values and
// returns its objects: CRDs first, webhook configurations last.
func Render(source string, values map[string]any) ([]*unstructured.Unstructured, error) {
	chart, err := loader.LoadDir(filepath.Join(source, "deployments", "liqo"))
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "liqo", Namespace: Namespace, IsInstall: true}
	merged, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, merged)
	if err != nil {
		return nil, err
	}
	var objects, last []*unstructured.Unstructured
	for name, text := range files {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		parsed, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, o := range parsed {
			if strings.HasSuffix(o.GetKind(), "WebhookConfiguration") {
				last = append(last, o)
			} else {
				objects = append(objects, o)
			}
		}
	}
	return append(objects, last...), nil
}

// CRDs returns Liqo's CustomResourceDefinitions: from the chart (v0.x) and from its subcharts (v1).
func CRDs(source string) ([]*unstructured.Unstructured, error) {
	chart, err := loader.LoadDir(filepath.Join(source, "deployments", "liqo"))
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, f := range chart.CRDObjects() {
		parsed, err := parse(string(f.File.Data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		out = append(out, parsed...)
	}
	return out, nil
}

// ParseFile reads the objects of a YAML file.
func ParseFile(path string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	objects, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return objects, nil
}

// separator begins a document. Helm keeps the rest of that line in the document (releaseutil.SplitManifests), and some
// templates of Liqo v0.x have text there.
var separator = regexp.MustCompile(`(?m)^---`)

func parse(text string) ([]*unstructured.Unstructured, error) {
	text = separator.ReplaceAllString(text, "---\n")
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	var out []*unstructured.Unstructured
	for {
		var o unstructured.Unstructured
		switch err := decoder.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		case len(o.Object) > 0:
			out = append(out, &o)
		}
	}
}

// WebhookCerts is the Secret of Liqo's chart in which Liqo's webhook keeps its own certificate. If it exists, the webhook
// writes its authority into the webhook configurations.
const WebhookCerts = "liqo-webhook-certs"

// Keep drops objects that a sandbox cannot run or does not need: Jobs and CronJobs, the hooks of an uninstallation, and,
// unless packets are real, DaemonSets and kernel configuration.
func Keep(objects []*unstructured.Unstructured, packets bool) []*unstructured.Unstructured {
	drop := map[string]bool{
		"DaemonSet": !packets, "Job": true, "CronJob": true, "FirewallConfiguration": !packets,
		"CustomResourceDefinition": true, "APIService": true,
	}
	var out []*unstructured.Unstructured
	for _, o := range objects {
		if drop[o.GetKind()] || strings.Contains(o.GetName(), "pre-delete") {
			continue
		}
		out = append(out, o)
	}
	return out
}

// Apply writes the objects by server-side apply with the given field owner. If it is repeated, fields that the objects
// no longer have are removed. Namespaced objects without a namespace are created in Liqo's.
func Apply(ctx context.Context, cl client.Client, owner string, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		o = o.DeepCopy()
		namespaced, err := cl.IsObjectNamespaced(o)
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if namespaced && o.GetNamespace() == "" {
			o.SetNamespace(Namespace)
		}
		err = cl.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(owner), client.ForceOwnership)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}
