package share

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// Messages list at most maxListed resources, each with at most maxNameLength bytes of its name. Consumers choose the
// names, and the message must fit into the status of a ResourceSlice.
const (
	maxListed     = 10
	maxNameLength = 100
)

// Text returns amounts as text: "4 cpu, 8Gi memory".
func Text(a resources.Amounts) string {
	texts := make([]string, 0, len(a))
	for _, name := range ordered(a) {
		texts = append(texts, quantityText(name, a[name])+" "+shortened(name))
	}
	return joined(texts, ", ")
}

func quantityText(name corev1.ResourceName, amount int64) string {
	q := resources.Quantity(name, amount)
	return q.String()
}

// ordered returns the names of the resources: the defaulted ones first, the others sorted.
func ordered(a resources.Amounts) []corev1.ResourceName {
	first := defaulted()
	names := make([]corev1.ResourceName, 0, len(a))
	for _, name := range first {
		if _, granted := a[name]; granted {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if !slices.Contains(first, name) {
			names = append(names, name)
		}
	}
	return names
}

// joined joins one text for each of several resources.
func joined(texts []string, separator string) string {
	if more := len(texts) - maxListed; more > 0 {
		texts = append(texts[:maxListed:maxListed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, separator)
}

func shortened(name corev1.ResourceName) string {
	if len(name) <= maxNameLength {
		return string(name)
	}
	return strings.ToValidUTF8(string(name[:maxNameLength]), "") + "…"
}
