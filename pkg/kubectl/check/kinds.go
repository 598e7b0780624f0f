package check

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/admission"
)

// apply returns the command that installs a file of a clone of the repository again, or the chart that has it.
func (i *installation) apply(file string) string {
	if broker := i.broker(); broker != nil && isRelease(broker) {
		return fmt.Sprintf("helm upgrade %s deploy/chart/liqo-broker-vk --namespace %s --reset-then-reuse-values",
			broker.Annotations[releaseName], broker.Annotations[releaseNamespace])
	}
	return "kubectl apply --server-side --force-conflicts -f deploy/" + file
}

// Annotations of Helm on the objects of a release.
const (
	releaseName      = "meta.helm.sh/release-name"
	releaseNamespace = "meta.helm.sh/release-namespace"
)

// isRelease reports whether Helm installed the broker.
func isRelease(broker *appsv1.Deployment) bool { return broker.Annotations[releaseName] != "" }

// kind is a kind of ours: the name of its CRD, and its Go type.
type kind struct {
	crd    string
	object any
}

func kinds() []kind {
	group := "." + v1alpha1.GroupVersion().Group
	return []kind{
		{"providerclusters" + group, v1alpha1.ProviderCluster{}},
		{"placementpolicies" + group, v1alpha1.PlacementPolicy{}},
		{"consumerclusters" + group, v1alpha1.ConsumerCluster{}},
	}
}

// checkCRDs compares the fields of the CRDs with the fields that this program knows.
func (i *installation) checkCRDs() []Check {
	if checks := i.unread("crds", crds); checks != nil {
		return checks
	}
	var checks []Check
	for _, k := range kinds() {
		checks = append(checks, k.check(i.crds[k.crd], i.apply("crds")))
	}
	return checks
}

func (k kind) check(crd *apiextensionsv1.CustomResourceDefinition, remedy string) Check {
	name := "crd/" + k.crd
	if crd == nil {
		return fail(name, "it does not exist", remedy)
	}
	wanted := v1alpha1.GroupVersion().Version
	at := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == wanted && v.Served
	})
	if at < 0 || crd.Spec.Versions[at].Schema == nil || crd.Spec.Versions[at].Schema.OpenAPIV3Schema == nil {
		return fail(name, "it does not serve the version "+wanted, remedy)
	}
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established && c.Status != apiextensionsv1.ConditionTrue {
			return fail(name, "the API server does not serve it: "+c.Message, "kubectl describe crd "+k.crd)
		}
	}
	var d difference
	d.compare(reflect.TypeOf(k.object), crd.Spec.Versions[at].Schema.OpenAPIV3Schema, "")
	slices.Sort(d.missing)
	slices.Sort(d.added)
	switch {
	case len(d.missing) > 0:
		return fail(name, "it is older than this program: the API server drops "+some(d.missing), remedy)
	case len(d.added) > 0:
		return warn(name, "it is newer than this program, which does not know "+some(d.added), "kubectl broker version")
	}
	return ok(name, "it has the fields of this version")
}

// some lists the first of several fields.
func some(fields []string) string {
	const shown = 3
	if len(fields) <= shown {
		return strings.Join(fields, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(fields[:shown], ", "), len(fields)-shown)
}

// difference has the paths of the fields that only a Go type has, and of the ones that only a schema has.
type difference struct{ missing, added []string }

// compare compares the JSON fields of a Go type with a schema.
func (d *difference) compare(t reflect.Type, schema *apiextensionsv1.JSONSchemaProps, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if schema == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return
	}
	switch t.Kind() {
	case reflect.Slice:
		if schema.Items != nil {
			d.compare(t.Elem(), schema.Items.Schema, path+"[]")
		}
	case reflect.Map:
		if schema.AdditionalProperties != nil {
			d.compare(t.Elem(), schema.AdditionalProperties.Schema, path+"{}")
		}
	case reflect.Struct:
		fields := map[string]reflect.Type{}
		fieldsOf(t, fields)
		if path == "" { // The API server knows these fields of every kind.
			delete(fields, "metadata")
		}
		for name, of := range fields {
			property, found := schema.Properties[name]
			if !found {
				d.missing = append(d.missing, path+"."+name)
				continue
			}
			d.compare(of, &property, path+"."+name)
		}
		for name := range schema.Properties {
			if _, known := fields[name]; !known && (path != "" || name != "metadata") {
				d.added = append(d.added, path+"."+name)
			}
		}
	}
}

// fieldsOf adds the JSON fields of a struct.
func fieldsOf(t reflect.Type, into map[string]reflect.Type) {
	for n := range t.NumField() {
		f := t.Field(n)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case strings.Contains(options, "inline") || f.Anonymous && name == "":
			fieldsOf(f.Type, into)
		default:
			into[name] = f.Type
		}
	}
}

// checkGuard checks the admission policies.
func (i *installation) checkGuard() []Check {
	const name = "guard"
	if i.unserved[policies] || i.unserved[bindings] {
		return []Check{fail(name, "the API server has no ValidatingAdmissionPolicies: it is older than Kubernetes 1.30",
			"kubectl version")}
	}
	if checks := i.unread(name, policies, bindings); checks != nil {
		return checks
	}
	faults := admission.Faults(i.policies, i.bindings)
	if len(faults) == 0 {
		return []Check{ok(name, "all admission policies are in force")}
	}
	message := "it is incomplete: " + strings.Join(faults, ", ")
	if !i.enabled("require-guard", true) {
		message += "; the broker works without it (--require-guard=false), and consumers are not bounded"
		return []Check{warn(name, message, i.apply("guard.yaml"))}
	}
	return []Check{fail(name, message, i.apply("guard.yaml"))}
}
