package view

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
)

func TestAPolicyNamesNoOtherConsumer(t *testing.T) {
	f := newFed(Config{})
	shared := policyFor("shared", "c1", "c2")
	shared.Spec.Priority, shared.Spec.Filter, shared.Spec.Providers = 5, "true", []string{"p1"}
	shared.Spec.Weights = []v1alpha1.Weight{{Name: "price", Weight: 3}}
	shared.Spec.Failover.Mode = v1alpha1.FailoverNever
	shared.Spec.MaxUnavailable = ptr.To(intstr.FromString("50%"))
	shared.Status.Pods = 7
	shared.Status.Conditions = []metav1.Condition{{Type: "Valid", Status: "True", LastTransitionTime: metav1.NewTime(noon)}}
	choice := selectionOf("c1", "", "p2")
	choice.Spec.Failover.Mode = v1alpha1.FailoverMove
	f.sees(shared, policyFor("everybody"), policyFor("other", "c2"), choice)

	got, err := f.Policies(Scope{Consumer: "c1"}, Page{})
	require.NoError(t, err)
	want := api.Policy{
		Name: "shared", Priority: 5, Consumers: []string{"c1"}, Providers: []string{"p1"}, Filter: "true",
		Weights: []api.Weight{{Name: "price", Weight: 3}}, Failover: "Never", MaxUnavailable: "50%", Pods: 7,
		Conditions: []api.Condition{{Type: "Valid", Status: "True", Since: noon}},
	}
	require.Equal(t, api.PolicyList{Page: api.Page{Total: 3}, Items: []api.Policy{
		{Name: "everybody"},
		{Name: "selection-c1", Consumers: []string{"c1"}, Selection: &api.Selection{Mode: "AllBut", Providers: []string{"p2"}}},
		want,
	}}, got)

	got, err = f.Policies(Scope{All: true}, Page{})
	require.NoError(t, err)
	require.Equal(t, []string{"c1", "c2"}, got.Items[3].Consumers)

	for _, s := range []Scope{{}, {Namespace: "team"}} {
		got, err = f.Policies(s, Page{})
		require.NoError(t, err)
		require.Equal(t, api.PolicyList{Items: []api.Policy{}}, got)
	}
}
