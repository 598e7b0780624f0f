package deploy

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// The services for which a broker's cluster is installed; each is an overlay of the same name.
const (
	Catalog      = "catalog"
	Orchestrator = "orchestrator"
	Aggregator   = "aggregator"
	All          = "all"
	// Sidecar is All, with the catalog as a sidecar in the broker's pods.
	Sidecar = "all-sidecar"
)

// Services returns all of them.
func Services() []string { return []string{Catalog, Orchestrator, Aggregator, All, Sidecar} }

// Namespace is the namespace that kustomize installs into.
const Namespace = "liqo-broker"

// minor is the minor version of Kubernetes that the chart is rendered for.
const minor = "35"

// Directory is the path of deploy/, relative to the working directory.
type Directory string

func (d Directory) chart() string { return filepath.Join(string(d), "chart", "liqo-broker-vk") }

// Values returns the values with which the chart renders the same objects for a service as kustomize. The chart's
// defaults leave out the Namespace, which Helm expects to exist, and an object of Liqo's release.
func Values(service string) map[string]any {
	all, mode := service == All || service == Sidecar, "deployment"
	if service == Sidecar {
		mode = "sidecar"
	}
	return map[string]any{
		"services": map[string]any{
			Catalog:      service == Catalog || all,
			Orchestrator: service == Orchestrator || all,
			Aggregator:   service == Aggregator || all,
		},
		"catalog":         map[string]any{"mode": mode},
		"namespace":       map[string]any{"create": true},
		"virtualKubelets": map[string]any{"options": true},
	}
}

// Rendered returns all objects that the chart renders for a service. They can be applied to an API server that has
// Liqo's CRDs. CRDs and the Namespace come first.
func (d Directory) Rendered(service string) ([]*unstructured.Unstructured, error) {
	return d.RenderedWith(Namespace, Values(service))
}

// RenderedWith returns the objects that the chart renders in a namespace with these values.
func (d Directory) RenderedWith(namespace string, values map[string]any) ([]*unstructured.Unstructured, error) {
	files, err := d.files(namespace, values)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".yaml" {
			continue
		}
		objects, err := parse(files[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, objects...)
	}
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return all, nil
}

// rank orders the objects: those that others depend on come first.
func rank(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case "CustomResourceDefinition":
		return 0
	case "Namespace":
		return 1
	}
	return 2
}

// files returns the rendered templates, by their names in the directory templates.
func (d Directory) files(namespace string, values map[string]any) (map[string]string, error) {
	loaded, err := loader.LoadDir(d.chart())
	if err != nil {
		return nil, err
	}
	return render(loaded, namespace, values)
}

func render(loaded *chart.Chart, namespace string, values map[string]any) (map[string]string, error) {
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: "v1." + minor + ".0", Major: "1", Minor: minor}
	release := chartutil.ReleaseOptions{Name: "liqo-broker", Namespace: namespace, IsInstall: true}
	merged, err := chartutil.ToRenderValues(loaded, values, release, capabilities)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Render(loaded, merged)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for name, text := range rendered {
		files[path.Base(name)] = text
	}
	return files, nil
}

// Kustomized returns the objects of a kustomization, by its path below deploy/, as `kubectl kustomize` builds them.
func (d Directory) Kustomized(name string) ([]*unstructured.Unstructured, error) {
	kustomizer := krusty.MakeKustomizer(krusty.MakeDefaultOptions())
	built, err := kustomizer.Run(filesys.MakeFsOnDisk(), filepath.Join(string(d), name))
	if err != nil {
		return nil, err
	}
	text, err := built.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	objects, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return objects, nil
}

func parse(text string) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	var objects []*unstructured.Unstructured
	for {
		var o unstructured.Unstructured
		switch err := decoder.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(o.Object) > 0:
			objects = append(objects, &o)
		}
	}
}
