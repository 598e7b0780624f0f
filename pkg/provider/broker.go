package provider

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/utils/clock"

	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/workload"

	"github.com/capacitorset/liqo-broker-vk/pkg/provider/brokernode"
)

// broker is what the pod reflector does otherwise with the pods of a broker's node.
type broker struct {
	refusals brokernode.Refusals
	// traces is nil when nothing is traced.
	traces *brokernode.Traces
}

func newBroker(cfg *Config, clients Clients, refusals *prometheus.CounterVec) *broker {
	b := &broker{refusals: brokernode.Refusals{
		View: *cfg.view(), Pods: clients.Local.CoreV1().Pods, Clock: clock.RealClock{}, Log: cfg.Log,
		Told: func(reason string) { refusals.WithLabelValues(reason).Inc() },
	}}
	if cfg.Tracer != nil {
		b.traces = &brokernode.Traces{View: *cfg.view(), Provider: string(cfg.ForeignCluster), Tracer: cfg.Tracer}
	}
	return b
}

// namespaced makes Liqo's pod reflectors, of which pods come and go between virtual kubelets.
func (b *broker) namespaced(pr *podReflector, remote corev1informers.PodInformer) generic.NamespacedReflectorFactoryFunc {
	return func(opts *options.NamespacedOpts) manager.NamespacedReflector {
		brokernode.WakeUp(opts)
		local := pr.localPods.Pods(opts.LocalNamespace)
		seen := *opts
		seen.RemoteLiqoClient = b.refusals.ShadowPods(opts.RemoteLiqoClient, local)
		if b.traces != nil {
			seen.RemoteLiqoClient = b.traces.ShadowPods(seen.RemoteLiqoClient, local)
		}
		reflector := pr.NewNamespaced(&seen)

		forget := func(string) {}
		if liqos, ok := reflector.(*workload.NamespacedPodReflector); ok {
			forget = liqos.ForgetPodInfo
		}
		return &brokernode.Handover{
			NamespacedReflector: pr.rooted(opts, remote, reflector),
			Local:               local,
			Remote:              opts.RemoteFactory.Core().V1().Pods().Lister().Pods(opts.RemoteNamespace),
			Shadows:             opts.RemoteLiqoFactory.Offloading().V1beta1().ShadowPods().Lister().ShadowPods(opts.RemoteNamespace),
			Forget:              forget,
		}
	}
}
