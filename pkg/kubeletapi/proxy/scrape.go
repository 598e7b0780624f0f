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

// Scraper reads what Liqo's metric agent at one provider measures of this cluster's pods. Their namespaces have the names
// that they have here.
type Scraper struct {
	// Provider is the id of the cluster.
	Provider string
	// Grant is what the provider grants.
	Grant exposition.Grant
	// Scrape opens the text. uri is the path and query of the request.
	Scrape func(ctx context.Context, uri *url.URL) (io.ReadCloser, error)
}

// scrape returns what Liqo's metric agents at all providers measure of the pods assigned there, and of the nodes of all
// together, as one text. A provider that does not answer is left out.
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

// metricsOf returns what was read of a provider's metrics before an error; nil if there was no answer.
func (s *server) metricsOf(ctx context.Context, of Scraper, uri *url.URL, pods sets.Set[types.NamespacedName]) *exposition.Metrics {
	text, err := of.Scrape(ctx, uri)
	if err != nil {
		s.Log.V(1).Info("Cannot scrape a provider", "provider", of.Provider, "because", err.Error())
		return nil
	}
	defer text.Close()
	metrics, err := exposition.Read(text, pods, time.Now())
	if err != nil {
		s.Log.Info("The metrics of a provider are not whole", "provider", of.Provider, "because", err.Error())
	}
	return metrics
}
