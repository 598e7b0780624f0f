package broker

import (
	"context"
	"io"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/state"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi/proxy"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi/proxy/exposition"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

// kubeletProviders implements kubelet.Providers.
type kubeletProviders struct {
	reader      client.Reader
	state       *state.Federation
	connections *remote.Connections
}

func (p kubeletProviders) Place(at scheduler.Place, namespace string) (proxy.Place, bool) {
	c := p.connections.Get(at)
	name, _ := p.state.RemoteNamespace(at, namespace)
	if c == nil || name == "" {
		return proxy.Place{}, false
	}
	return proxy.Place{Namespace: name, Config: c.Config, Kube: c.Kube, Metrics: c.Metrics}, true
}

func (p kubeletProviders) Scrapers(ctx context.Context) []proxy.Scraper {
	home := p.clusterID(ctx)
	var all []proxy.Scraper
	places := slices.CompactFunc(p.state.VirtualNodes(), func(a, b scheduler.Place) bool { return a.Provider == b.Provider })
	for _, at := range places { // One of each provider.
		if c := p.connections.Get(at); c != nil {
			scrape := func(ctx context.Context, uri *url.URL) (io.ReadCloser, error) {
				return kubeletapi.ScrapeRequest(c.Kube, kubeletapi.MetricsV1, string(home), uri).Stream(ctx)
			}
			known, _ := p.state.Provider(at.Provider)
			granted := known.Granted
			all = append(all, proxy.Scraper{Provider: at.Provider, Scrape: scrape, Grant: exposition.Grant{
				CPU: float64(granted[corev1.ResourceCPU]) / 1000, Memory: float64(granted[corev1.ResourceMemory]),
			}})
		}
	}
	slices.SortFunc(all, func(a, b proxy.Scraper) int { return strings.Compare(a.Provider, b.Provider) })
	return all
}

// clusterID returns the id of this cluster in its peerings with the providers; "" while it has none.
func (p kubeletProviders) clusterID(ctx context.Context) liqov1beta1.ClusterID {
	var list authv1beta1.ResourceSliceList
	if err := p.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return ""
	}
	providers := p.state.Providers()
	for i := range list.Items {
		spec := &list.Items[i].Spec
		if slices.Contains(providers, string(ptr.Deref(spec.ProviderClusterID, ""))) {
			return ptr.Deref(spec.ConsumerClusterID, "")
		}
	}
	return ""
}
