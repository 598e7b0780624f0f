package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

const here Directory = "../../deploy"

// identity returns the identity of an object in a cluster.
func identity(o *unstructured.Unstructured) string {
	return o.GetAPIVersion() + " " + o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// byIdentity returns the objects in JSON, without the annotation for Helm to keep CRDs.
func byIdentity(t *testing.T, objects []*unstructured.Unstructured) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, o := range objects {
		if o.GetKind() == "CustomResourceDefinition" {
			o = o.DeepCopy()
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "helm.sh/resource-policy")
		}
		text, err := json.MarshalIndent(o.Object, "", "  ")
		require.NoError(t, err)
		require.NotContains(t, all, identity(o), "twice")
		all[identity(o)] = string(text)
	}
	require.NotEmpty(t, all)
	return all
}

func same(t *testing.T, want, got []*unstructured.Unstructured) {
	t.Helper()
	one, other := byIdentity(t, want), byIdentity(t, got)
	for id, text := range one {
		if assert.Contains(t, other, id) {
			assert.Equal(t, text, other[id], id)
		}
	}
	for id := range other {
		assert.Contains(t, one, id)
	}
}

// convert converts an object to a Go type, which must have all of its fields.
func convert(t *testing.T, o *unstructured.Unstructured, typed any) {
	t.Helper()
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true)
	require.NoError(t, err, identity(o))
}

// find returns the object of a kind and name as its type.
func find[T any](t *testing.T, objects []*unstructured.Unstructured, kind, name string) *T {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			typed := new(T)
			convert(t, o, typed)
			return typed
		}
	}
	require.Failf(t, "not there", "%s %s", kind, name)
	return nil
}

func has(objects []*unstructured.Unstructured, kind, name string) bool {
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return true
		}
	}
	return false
}

func rendered(t *testing.T, service string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := here.Rendered(service)
	require.NoError(t, err)
	return objects
}

func kustomized(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := here.Kustomized(name)
	require.NoError(t, err)
	return objects
}

func TestGeneratedFilesAreCurrent(t *testing.T) {
	made, err := here.Generated()
	require.NoError(t, err)
	for name, want := range made {
		got, err := os.ReadFile(filepath.Join(string(here), name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s: run make generate", name)
	}
	// No file exists that is no longer generated.
	for _, pattern := range []string{
		"chart/liqo-broker-vk/files/*/*", "kustomize/base/*.yaml", "kustomize/components/*/*.yaml",
	} {
		names, err := filepath.Glob(filepath.Join(string(here), pattern))
		require.NoError(t, err)
		require.NotEmpty(t, names, pattern)
		for _, name := range names {
			below, err := filepath.Rel(string(here), name)
			require.NoError(t, err)
			if filepath.Base(name) != "kustomization.yaml" {
				require.Contains(t, made, filepath.ToSlash(below))
			}
		}
	}
}

func TestChartAndKustomizeHaveTheSameObjects(t *testing.T) {
	for _, service := range Services() {
		t.Run(service, func(t *testing.T) { same(t, rendered(t, service), kustomized(t, "kustomize/"+service)) })
	}
}

// The documents and the sandbox use these files.
func TestFilesForKubectlAreTheOrchestrator(t *testing.T) {
	var all []*unstructured.Unstructured
	for _, name := range []string{
		"crds/brokering.liqo.io_consumerclusters.yaml", "crds/brokering.liqo.io_placementpolicies.yaml",
		"crds/brokering.liqo.io_providerclusters.yaml",
		"guard.yaml", "broker.yaml", "virtual-kubelet-options.yaml",
	} {
		text, err := os.ReadFile(filepath.Join(string(here), name))
		require.NoError(t, err)
		objects, err := parse(string(text))
		require.NoError(t, err, name)
		all = append(all, objects...)
	}
	same(t, kustomized(t, "kustomize/orchestrator"), all)
	for _, name := range []string{
		"catalog.yaml", "catalog-liqo-v0.yaml", "network-manager.yaml", "virtual-kubelet-auth.yaml", "virtual-kubelet-addresses.yaml",
	} {
		text, err := os.ReadFile(filepath.Join(string(here), name))
		require.NoError(t, err)
		require.Contains(t, string(text), "\nkind: ", name)
	}
}

func TestMonitoringIsTheSameByBoth(t *testing.T) {
	values := Values(All)
	values["monitoring"] = map[string]any{"enabled": true}
	with, err := here.RenderedWith(Namespace, values)
	require.NoError(t, err)
	same(t, with, append(kustomized(t, "kustomize/all"), kustomized(t, "observability")...))
}

func TestServicesAreWhatWasAskedFor(t *testing.T) {
	for service, want := range map[string]struct {
		flags           []string
		catalog, remote bool
	}{
		Catalog:      {[]string{"--with-catalog"}, true, false},
		Orchestrator: {[]string{"--with-orchestrator"}, false, false},
		Aggregator:   {[]string{"--with-aggregator"}, false, true},
		All:          {[]string{"--with-aggregator", "--with-catalog", "--with-orchestrator"}, true, true},
	} {
		t.Run(service, func(t *testing.T) {
			objects := rendered(t, service)
			broker := find[appsv1.Deployment](t, objects, "Deployment", "liqo-broker")
			var flags []string
			for _, arg := range broker.Spec.Template.Spec.Containers[0].Args {
				if strings.HasPrefix(arg, "--with-") {
					flags = append(flags, arg)
				}
			}
			assert.Equal(t, want.flags, flags)
			assert.Equal(t, want.catalog, has(objects, "Deployment", "liqo-broker-catalog"))
			assert.Equal(t, want.catalog, has(objects, "ClusterRole", "liqo-broker-vk-catalog"))
			assert.Equal(t, want.remote, has(objects, "Service", "liqo-network-manager"))
			for _, policy := range guardPolicies(t) {
				assert.True(t, has(objects, "ValidatingAdmissionPolicy", policy), policy)
				assert.True(t, has(objects, "ValidatingAdmissionPolicyBinding", policy), policy)
			}
			assert.True(t, has(objects, "VkOptionsTemplate", "virtual-kubelet-default"))
		})
	}
}

func TestConsumersHaveTheirPart(t *testing.T) {
	objects := kustomized(t, "consumer")
	require.True(t, has(objects, "ClusterRole", "liqo-broker-vk-kubelet-auth"))
	require.True(t, has(objects, "ClusterRole", "liqo-broker-vk-addresses"))
	require.True(t, has(objects, "VkOptionsTemplate", "virtual-kubelet-default"))
	require.Len(t, objects, 3)
}
