package offer

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// supply is what there is to offer.
type supply struct {
	sum Amounts
	// providers is how many clusters it comes from, regions where they are, sorted.
	providers int
	regions   []string
}

// supplyOf adds up what the providers granted that may get new pods. One that cannot be reached for a while counts: what
// it granted is still promised, and offers that follow every outage would help nobody.
func supplyOf(providers []v1alpha1.ProviderCluster) supply {
	s := supply{sum: Amounts{}}
	regions := sets.New[string]()
	for i := range providers {
		p := &providers[i]
		disabled := p.Spec.Enabled != nil && !*p.Spec.Enabled
		if disabled || p.Spec.Cordoned || p.Spec.Drain || len(p.Status.Resources.Granted) == 0 {
			continue
		}
		s.sum.add(fromList(p.Status.Resources.Granted))
		s.providers++
		regions.Insert(p.Spec.Attributes["region"])
	}
	s.regions = sets.List(regions.Delete(""))
	return s
}

// labels are those of the consumer's virtual node.
func (s *supply) labels() map[string]string {
	labels := map[string]string{v1alpha1.ProvidersLabel: strconv.Itoa(s.providers)}
	if value := regionsValue(s.regions); value != "" {
		labels[v1alpha1.RegionsLabel] = value
	}
	return labels
}

// regionsValue joins names to a label's value, "eu_us". Characters that no label has become dashes; names that do not
// fit any more are left out.
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
