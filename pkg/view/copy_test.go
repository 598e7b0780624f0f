package view

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// answers are those to all questions.
func answers(t *testing.T, f *fed) []any {
	all := Scope{All: true}
	providers, err := f.Providers(ProviderQuery{Consumer: "c1"})
	require.NoError(t, err)
	placements, err := f.Placements(PlacementQuery{Scope: all})
	require.NoError(t, err)
	policies, err := f.Policies(all, Page{})
	require.NoError(t, err)
	theirs, err := f.Policies(Scope{Consumer: "c1"}, Page{})
	require.NoError(t, err)
	provider, _ := f.Provider("p1", "c1")
	history, _ := f.History("p1")
	return []any{&providers, &placements, &policies, &theirs, &provider, &history, f.Flows(all), f.ForeignClusters()}
}

// vandalize writes to all that can be written to.
func vandalize(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			vandalize(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			vandalize(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			vandalize(v.Index(i))
		}
	case reflect.Map:
		v.Clear()
	case reflect.String:
		if v.CanSet() {
			v.SetString("vandalized")
		}
	case reflect.Bool:
		if v.CanSet() {
			v.SetBool(!v.Bool())
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		if v.CanSet() {
			v.SetInt(v.Int() + 99)
		}
	case reflect.Float64:
		if v.CanSet() {
			v.SetFloat(v.Float() + 99)
		}
	}
}

func TestResultsAreCopies(t *testing.T) {
	f := newFed(Config{})
	policy := policyFor("shared", "c1", "c2")
	policy.Spec.Providers, policy.Spec.Weights = []string{"p1"}, []v1alpha1.Weight{{Name: "price", Weight: 1}}
	foreign := &liqov1beta1.ForeignCluster{}
	foreign.Name, foreign.Labels = "p1", map[string]string{"a": "b"}
	f.sees(cluster("p1", func(pc *v1alpha1.ProviderCluster) {
		pc.Spec.Attributes = map[string]string{"price": "1", "region": "eu"}
		pc.Status.KPIs.PodStart = &v1alpha1.PodStart{}
		pc.Status.KPIs.Uptime = v1alpha1.Uptime{
			LastHour: "1", LastDay: "1", LastWeek: "1", LastMonth: "1",
			Since: &pc.CreationTimestamp, Gaps: []v1alpha1.Gap{{Kind: v1alpha1.GapDown}},
		}
		pc.Status.KPIs.Started = 1
	}), podIn("a", "x", assigned("p1", 3)), policy, selectionOf("c1", "", "p1"), foreign)
	f.providers.sample(noon, 3)

	before, err := json.Marshal(answers(t, f))
	require.NoError(t, err)
	spoiled := answers(t, f)
	vandalize(reflect.ValueOf(spoiled))
	damage, err := json.Marshal(spoiled)
	require.NoError(t, err)
	require.NotEqual(t, string(before), string(damage))
	after, err := json.Marshal(answers(t, f))
	require.NoError(t, err)
	require.JSONEq(t, string(before), string(after))
}
