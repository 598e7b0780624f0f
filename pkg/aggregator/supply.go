package aggregator

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

type supply struct {
	sum resources.Amounts
	// providers is the number of clusters it comes from, regions are their regions, sorted.
	providers int
	regions   []string
}

// supplyOf returns the sum of the grants of all providers that may get new pods. Unreachable ones count, because their
// grants stay valid. Otherwise offers would change with every outage.
func supplyOf(providers []v1alpha1.ProviderCluster) supply {
	s := supply{sum: resources.Amounts{}}
	regions := sets.New[string]()
	for i := range providers {
		granted := resources.RoundDown(providers[i].Status.Resources.Granted)
		p := placement.Provider(&providers[i], nil, nil)
		if !p.Schedulable() || len(granted) == 0 {
			continue
		}
		s.sum.Add(granted)
		s.providers++
		regions.Insert(providers[i].Spec.Region())
	}
	s.regions = sets.List(regions.Delete(""))
	return s
}

// unknown returns the providers that have a VirtualNode and no ProviderCluster, or one without a status.
func unknown(providers []v1alpha1.ProviderCluster, virtualNodes []offloadingv1beta1.VirtualNode) sets.Set[string] {
	missing := sets.New[string]()
	for i := range virtualNodes {
		missing.Insert(string(virtualNodes[i].Spec.ClusterID))
	}
	for i := range providers {
		if missing.Delete(providers[i].Name); withoutStatus(&providers[i]) {
			missing.Insert(providers[i].Name)
		}
	}
	return missing
}

// withoutStatus reports whether a provider may get new pods and its status was never written.
func withoutStatus(pc *v1alpha1.ProviderCluster) bool {
	p := placement.Provider(pc, nil, nil)
	return p.Schedulable() && len(pc.Status.Resources.Granted) == 0 &&
		meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ProviderReady) == nil
}

// labels returns the labels of the consumer's virtual node.
func (s *supply) labels() map[string]string {
	labels := map[string]string{v1alpha1.ProvidersLabel: strconv.Itoa(s.providers)}
	if value := regionsValue(s.regions); value != "" {
		labels[v1alpha1.RegionsLabel] = value
	}
	return labels
}

// regionsValue joins names to a label's value, "eu_us". Characters that are invalid in a label become dashes. Names
// that no longer fit are omitted.
func regionsValue(regions []string) string {
	var names []string
	length := -1
	for _, region := range regions {
		name := strings.Trim(strings.Map(func(r rune) rune {
			if r < 128 && (r == '-' || r == '.' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z') {
				return r
			}
			return '-'
		}, region), "-.")
		if name == "" || slices.Contains(names, name) {
			continue
		}
		if length += 1 + len(name); length > validation.LabelValueMaxLength {
			break
		}
		names = append(names, name)
	}
	return strings.Join(names, "_")
}
