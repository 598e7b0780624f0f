package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// GetConsumers prints ConsumerClusters: the share of each consumer, and the resources that it has and uses.
func (s *Session) GetConsumers(ctx context.Context, q Query) error {
	q.AllNamespaces = false // They have no namespace; like kubectl, ignore the flag.
	if err := q.validate(); err != nil {
		return err
	}
	return s.printView(ctx, &view{
		list: &v1alpha1.ConsumerClusterList{}, one: &v1alpha1.ConsumerCluster{},
		options: q.selected(), matches: q.matches, columns: s.consumerColumns(), nothing: "No resources found",
	}, &q)
}

func (s *Session) consumerColumns() []column {
	of, wide := columnsOf[*v1alpha1.ConsumerCluster]()
	used := func(name corev1.ResourceName) func(*v1alpha1.ConsumerCluster) string {
		return func(c *v1alpha1.ConsumerCluster) string { return usedOf(c, name) }
	}
	listed := func(amounts func(*v1alpha1.ConsumerCluster) corev1.ResourceList) func(*v1alpha1.ConsumerCluster) string {
		return func(c *v1alpha1.ConsumerCluster) string { return resourcesText(amounts(c)) }
	}
	return []column{
		of("Name", func(c *v1alpha1.ConsumerCluster) string { return c.Name }),
		of("Weight", func(c *v1alpha1.ConsumerCluster) string {
			return fmt.Sprint(ptr.Deref(c.Spec.Weight, v1alpha1.DefaultWeight))
		}),
		of("Share", func(c *v1alpha1.ConsumerCluster) string { return cmp.Or(c.Status.Share, unknown) }),
		of("Pods", func(c *v1alpha1.ConsumerCluster) string { return fmt.Sprint(c.Status.Pods) }),
		of("CPU", used(corev1.ResourceCPU)),
		of("Memory", used(corev1.ResourceMemory)),
		of("Age", func(c *v1alpha1.ConsumerCluster) string { return age(s.Now(), c.CreationTimestamp.Time) }),
		wide("Dominant", func(c *v1alpha1.ConsumerCluster) string { return cmp.Or(string(c.Status.DominantResource), none) }),
		wide("Guaranteed", listed(func(c *v1alpha1.ConsumerCluster) corev1.ResourceList { return c.Spec.Guaranteed })),
		wide("Limits", listed(func(c *v1alpha1.ConsumerCluster) corev1.ResourceList { return c.Spec.Limits })),
		wide("Borrowed", listed(func(c *v1alpha1.ConsumerCluster) corev1.ResourceList { return c.Status.Borrowed })),
		wide("Lent", listed(func(c *v1alpha1.ConsumerCluster) corev1.ResourceList { return c.Status.Lent })),
		wide("Reclaimed", listed(func(c *v1alpha1.ConsumerCluster) corev1.ResourceList { return c.Status.Reclaimed })),
	}
}

// usedOf returns the amount of a resource that a consumer uses, and its grant, "3/8"; unknown before the aggregator has written it.
func usedOf(c *v1alpha1.ConsumerCluster, name corev1.ResourceName) string {
	if c.Status.Share == "" {
		return unknown
	}
	used, granted := c.Status.Used[name], c.Status.Granted[name]
	return used.String() + "/" + granted.String()
}

// resourcesText returns amounts by name, "cpu=8,memory=32Gi".
func resourcesText(amounts corev1.ResourceList) string {
	texts := make([]string, 0, len(amounts))
	for name, amount := range amounts {
		texts = append(texts, fmt.Sprintf("%s=%s", name, amount.String()))
	}
	slices.Sort(texts)
	return cmp.Or(strings.Join(texts, ","), none)
}
