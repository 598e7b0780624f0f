package proxy

import (
	"context"
	"io"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi/proxy/exposition"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// Scraper reads the metrics of this cluster's pods from Liqo's metric agent at one provider. Namespaces have their
// local names in them.
type Scraper struct {
	// Provider is the id of the cluster.
	Provider string
	// Grant is the capacity that the provider grants.
	Grant exposition.Grant
	// Scrape opens the text. uri is the path and query of the request.
	Scrape func(ctx context.Context, uri *url.URL) (io.ReadCloser, error)
}

// scrape returns, as one text, the metrics that Liqo's metric agents at all providers measure for the pods assigned
// there, and for the nodes of all providers together. A provider that does not answer is omitted.
func (s *server) scrape(ctx context.Context, uri *url.URL) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	pods, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	assigned := map[string]sets.Set[types.NamespacedName]{} // By provider.
	for _, pod := range pods {
		if provider := placement.AssignedTo(pod).Provider; provider != "" {
			if assigned[provider] == nil {
				assigned[provider] = sets.New[types.NamespacedName]()
			}
			assigned[provider].Insert(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	scrapers := s.Providers.Scrapers(ctx)
	all := make([]*exposition.Metrics, len(scrapers))
	var asking sync.WaitGroup
	for i, of := range scrapers {
		asking.Go(func() { all[i] = s.metricsOf(ctx, of, uri, assigned[of.Provider]) })
	}
	asking.Wait()
	now := time.Now()
	for i, of := range scrapers {
		if all[i] != nil {
			s.used.Bound(of.Provider, all[i], of.Grant, now)
		}
	}
	for i, of := range scrapers {
		if all[i] == nil {
			all[i] = s.used.Missing(of.Provider, all)
		}
	}
	return exposition.Merge(all), nil
}

// metricsOf returns the part of a provider's metrics that was read before an error; nil if there was no answer.
func (s *server) metricsOf(ctx context.Context, of Scraper, uri *url.URL, pods sets.Set[types.NamespacedName]) *exposition.Metrics {
	text, err := of.Scrape(ctx, uri)
	if err != nil {
		s.Log.V(1).Info("Cannot scrape a provider", "provider", of.Provider, "reason", err.Error())
		return nil
	}
	defer text.Close()
	metrics, err := exposition.Read(text, pods, time.Now())
	if err != nil {
		s.Log.Info("Metrics of a provider are incomplete", "provider", of.Provider, "reason", err.Error())
	}
	return metrics
}
