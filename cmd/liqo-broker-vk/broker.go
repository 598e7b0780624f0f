package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/go-logr/logr"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/build"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/offloading"
)

// brokerOptions are the flags of the broker.
type brokerOptions struct {
	flags.Service
	catalog, orchestrator, aggregator bool

	nodeIP           string
	podName          string
	namespace        string
	providerSelector string
	providerProxies  []string
	consumerSelector string
	namespaceMapping string
	offers           flags.Offers
	requireGuard     bool
	isolateConsumers bool
	ownerClusterRole string

	flags.Kubelet
	listenPort      uint16
	certificateType string

	ipam   flags.RemoteIPAM
	ledger flags.Ledger

	leaseDuration, renewDeadline, retryPeriod time.Duration
	nodeLeaseDuration                         time.Duration

	times       broker.Times
	movesAtOnce int
	workers     int

	tracing flags.Tracing
}

func newBrokerOptions() *brokerOptions {
	return &brokerOptions{
		Service: flags.NewService(":8080", ":8081", 200, 400),
		nodeIP:  os.Getenv("POD_IP"), podName: os.Getenv("POD_NAME"), namespace: os.Getenv("POD_NAMESPACE"),
		namespaceMapping: string(offloadingv1beta1.DefaultNameMappingStrategyType), offers: flags.NewOffers(),
		Kubelet: flags.NewKubelet(), listenPort: 10250, certificateType: string(kubeletapi.CertificateKubelet),
		ipam: flags.NewRemoteIPAM(), ledger: flags.NewLedger(),
		leaseDuration: 15 * time.Second, renewDeadline: 10 * time.Second, retryPeriod: time.Second,
		nodeLeaseDuration: 20 * time.Second,
		times: broker.Times{
			ProbeInterval: 5 * time.Second, ProbeTimeout: 3 * time.Second,
			FailoverAfter: time.Minute, SuspicionWindow: time.Minute, PendingTimeout: 2 * time.Minute, ReserveAfter: 5 * time.Minute,
			RefusalMemory: 5 * time.Minute, StatusInterval: 5 * time.Second, RequestTimeout: 10 * time.Second,
		},
		requireGuard: true, isolateConsumers: true, movesAtOnce: 500, workers: 16,
		tracing: flags.NewTracing(),
	}
}

func newBrokerCommand(logs io.Writer, built build.Info) *cobra.Command {
	o := newBrokerOptions()
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run the broker: one virtual node for many provider clusters",
		Long: "broker owns one virtual node for many provider clusters. It assigns every pod bound to the node to one of them,\n" +
			"probes the providers, and moves the pods of a provider that fails.",
		Example: `  # In a pod, with the environment variables POD_IP, POD_NAME and POD_NAMESPACE
  liqo-broker-vk broker --with-orchestrator

  # All services, and a ledger of the use of providers
  liqo-broker-vk broker --with-catalog --with-orchestrator --with-aggregator --ledger=/var/lib/liqo-broker/ledger.db`,
	}
	return newServiceCommand(cmd, o, logs, built)
}

func (o *brokerOptions) common() *flags.Service { return &o.Service }

func (o *brokerOptions) needsLiqo(missing error) error { return missing }

func (o *brokerOptions) install(f *pflag.FlagSet) {
	o.Service.Install(f)
	f.BoolVar(&o.catalog, "with-catalog", false,
		"Offer the catalog of the federation's clusters and their resources; it runs as a separate process "+
			"(liqo-broker-vk catalog), so this flag starts nothing")
	f.BoolVar(&o.orchestrator, "with-orchestrator", false, "Offer the orchestrator: consumers choose providers by name or criteria")
	f.BoolVar(&o.aggregator, "with-aggregator", false, "Offer the aggregator: consumers see the sum of all providers")

	f.StringVar(&o.nodeIP, "node-ip", o.nodeIP,
		"The IP address of this pod, where the API server reaches the kubelet API (environment POD_IP)")
	f.StringVar(&o.podName, "pod-name", o.podName, "The name of this pod (environment POD_NAME)")
	f.StringVar(&o.namespace, "namespace", o.namespace,
		"The namespace of this pod and of the leader's Lease (environment POD_NAMESPACE)")
	f.StringVar(&o.providerSelector, "provider-selector", o.providerSelector,
		"The label selector of the VirtualNodes whose clusters are providers; empty for all")
	f.StringSliceVar(&o.providerProxies, "provider-proxy-url", nil,
		"The proxyURLs accepted from the status of providers' ResourceSlices, as set by liqoctl peer --in-band; * for any")
	f.StringVar(&o.consumerSelector, "consumer-selector", o.consumerSelector,
		"The label selector of the ForeignClusters of the consumers whose namespaces are offloaded to the providers; empty for all")
	f.StringVar(&o.namespaceMapping, "namespace-mapping-strategy", o.namespaceMapping,
		"How consumers' namespaces are named at the providers: DefaultName or EnforceSameName")
	o.offers.Install(f)
	f.BoolVar(&o.requireGuard, "require-guard", o.requireGuard,
		"Do not assign or move pods or offer resources unless the admission policies of deploy/guard.yaml are in force")
	f.BoolVar(&o.isolateConsumers, "isolate-consumers", o.isolateConsumers,
		"Make the gateways of Liqo's network drop traffic from a consumer to pods other than its own")
	f.StringVar(&o.ownerClusterRole, "owner-cluster-role", o.ownerClusterRole,
		"A ClusterRole that owns the Node, so that the Node is deleted with it; empty for none")

	f.Uint16Var(&o.listenPort, "listen-port", o.listenPort, "The port of the kubelet API")
	f.StringVar(&o.certificateType, "certificate-type", o.certificateType,
		"The signer of the kubelet API's certificate: kubelet (the cluster), self-signed, or aws (EKS; the broker may not "+
			"approve these requests, so an administrator must)")
	o.Kubelet.Install(f, " and the remote IPAM")
	o.ipam.Install(f)
	o.ledger.Install(f)
	o.installTimes(f)
	f.IntVar(&o.movesAtOnce, "moves-at-once", o.movesAtOnce,
		"The maximum number of pods that have left their provider and do not run elsewhere yet; a pod counts for at most 10 s")
	f.IntVar(&o.workers, "workers", o.workers, "How many pods are reconciled in parallel")
	o.tracing.Install(f)
	o.tracing.InstallSampling(f)
}

func (o *brokerOptions) installTimes(f *pflag.FlagSet) {
	f.DurationVar(&o.leaseDuration, "leader-election-lease-duration", o.leaseDuration,
		"The time without a renewal after which another replica may lead")
	f.DurationVar(&o.renewDeadline, "leader-election-renew-deadline", o.renewDeadline, "How long the leader tries to renew its lease")
	f.DurationVar(&o.retryPeriod, "leader-election-retry-period", o.retryPeriod, "How often replicas try to lead")
	f.DurationVar(&o.nodeLeaseDuration, "node-lease-duration", o.nodeLeaseDuration,
		"The duration of the Node's Lease, which is renewed after a quarter of this time")

	f.DurationVar(&o.times.ProbeInterval, "probe-interval", o.times.ProbeInterval, "How often each provider is probed")
	f.DurationVar(&o.times.ProbeTimeout, "probe-timeout", o.times.ProbeTimeout, "How long a provider may take to answer a probe")
	f.DurationVar(&o.times.FailoverAfter, "failover-after", o.times.FailoverAfter,
		"How long a provider must have been unreachable before its pods are moved, unless a PlacementPolicy sets it")
	f.DurationVar(&o.times.SuspicionWindow, "suspicion-window", o.times.SuspicionWindow,
		"The time within which most providers must become unreachable for the broker to suspend moves")
	f.DurationVar(&o.times.SuspicionLimit, "suspicion-limit", o.times.SuspicionLimit,
		"How long a provider that stays unreachable counts for the suspension of moves while another one answers; 0 for no limit")
	f.DurationVar(&o.times.PendingTimeout, "pending-timeout", o.times.PendingTimeout,
		"How long a pod may be Pending at a provider before it is moved, unless a PlacementPolicy sets it; 0 for no limit")
	f.DurationVar(&o.times.RefusalMemory, "refusal-memory", o.times.RefusalMemory,
		"The back-off of a pod from a slice that rejected or did not start it; doubles with each attempt, to at most six times this value")
	f.DurationVar(&o.times.ReserveAfter, "reserve-after", o.times.ReserveAfter,
		"How long a pod waits, while smaller pods use the capacity that becomes free, before it gets a reservation on a slice; 0 for never")
	f.DurationVar(&o.times.StatusInterval, "status-interval", o.times.StatusInterval,
		"The minimum time between two updates of the status of a ProviderCluster")
	f.DurationVar(&o.times.RequestTimeout, "request-timeout", o.times.RequestTimeout,
		"The deadline of each request to a provider, except streams")
}

// validate returns all invalid options as one error.
func (o *brokerOptions) validate() error {
	var f flags.Faults
	if !o.catalog && !o.orchestrator && !o.aggregator {
		f.Add("no service is enabled", "set at least one of --with-catalog, --with-orchestrator, --with-aggregator")
	}
	o.Service.Validate(&f)
	f.When(net.ParseIP(o.nodeIP) == nil, fmt.Sprintf("--node-ip=%s", o.nodeIP), "give the IP address of this pod")
	f.Require(o.namespace, "--namespace", "give the namespace of this pod")
	f.Require(o.podName, "--pod-name", "give the name of this pod")
	f.Selector("--provider-selector", o.providerSelector)
	f.Selector("--consumer-selector", o.consumerSelector)
	f.OneOf("--namespace-mapping-strategy", o.namespaceMapping, string(offloadingv1beta1.DefaultNameMappingStrategyType),
		string(offloadingv1beta1.EnforceSameNameMappingStrategyType))
	o.Kubelet.Validate(&f, o.listenPort)
	f.OneOf("--certificate-type", o.certificateType, string(kubeletapi.CertificateSelfSigned),
		string(kubeletapi.CertificateKubelet), string(kubeletapi.CertificateAWS))
	o.offers.Validate(&f)
	o.ipam.Validate(&f, o.aggregator && o.certificateType == string(kubeletapi.CertificateSelfSigned))
	o.ledger.Validate(&f)
	o.validateTimes(&f)
	f.Limit("--moves-at-once", float64(o.movesAtOnce))
	f.Limit("--workers", float64(o.workers))
	o.tracing.Validate(&f)
	return f.Err()
}

func (o *brokerOptions) validateTimes(f *flags.Faults) {
	t := o.times
	f.Positive("--probe-interval", t.ProbeInterval)
	f.Positive("--probe-timeout", t.ProbeTimeout)
	f.Positive("--failover-after", t.FailoverAfter)
	f.Positive("--suspicion-window", t.SuspicionWindow)
	f.When(t.SuspicionLimit != 0 && t.SuspicionLimit <= t.SuspicionWindow, fmt.Sprintf("--suspicion-limit=%s", t.SuspicionLimit),
		"use a duration above --suspicion-window, or 0 for no limit")
	f.Positive("--refusal-memory", t.RefusalMemory)
	f.Positive("--status-interval", t.StatusInterval)
	f.Positive("--request-timeout", t.RequestTimeout)
	f.Positive("--leader-election-retry-period", o.retryPeriod)
	f.When(t.PendingTimeout < 0, fmt.Sprintf("--pending-timeout=%s", t.PendingTimeout), "use a duration, or 0 for no limit")
	f.When(t.ReserveAfter < 0, fmt.Sprintf("--reserve-after=%s", t.ReserveAfter), "use a duration, or 0 for never")
	if o.renewDeadline <= o.retryPeriod || o.leaseDuration <= o.renewDeadline {
		f.Add(fmt.Sprintf("--leader-election-lease-duration=%s, --leader-election-renew-deadline=%s, --leader-election-retry-period=%s",
			o.leaseDuration, o.renewDeadline, o.retryPeriod), "make each longer than the next")
	}
	f.AtLeastASecond("--node-lease-duration", o.nodeLeaseDuration)
}

// offloading returns nil if no service offloads namespaces of consumers to the providers.
func (o *brokerOptions) offloading() (*offloading.Config, error) {
	if !o.orchestrator && !o.aggregator {
		return nil, nil // There is no such service. This is not an error.
	}
	consumers, err := labels.Parse(o.consumerSelector)
	if err != nil {
		return nil, err
	}
	return &offloading.Config{
		Consumers: consumers, Mapping: offloadingv1beta1.NamespaceMappingStrategyType(o.namespaceMapping), BrokerNode: o.NodeName,
	}, nil
}

// config returns the broker's Config without Log, Home and Tracer.
func (o *brokerOptions) config() (broker.Config, error) {
	selector, err := labels.Parse(o.providerSelector)
	if err != nil {
		return broker.Config{}, err
	}
	offloadingConfig, err := o.offloading()
	if err != nil {
		return broker.Config{}, err
	}
	cfg := broker.Config{
		NodeName: o.NodeName, NodeIP: o.nodeIP, OwnerClusterRole: o.ownerClusterRole,
		Namespace: o.namespace, ProviderSelector: selector, ProviderProxies: o.providerProxies,
		Offloading: offloadingConfig, RequireGuard: o.requireGuard, IsolateConsumers: o.isolateConsumers,
		Kubelet: broker.KubeletConfig{
			Port: o.listenPort, CertificateType: kubeletapi.CertificateType(o.certificateType), CertDir: o.CertDir,
			ClientCAFile: o.ClientCAFile, AuthorizationMode: kubeletapi.AuthorizationMode(o.AuthorizationMode),
		},
		Lease: broker.LeaseConfig{
			Duration: o.leaseDuration, RenewDeadline: o.renewDeadline, RetryPeriod: o.retryPeriod, NodeDuration: o.nodeLeaseDuration,
		},
		Ledger: o.ledger.Config(),
		Times:  o.times, MovesAtOnce: o.movesAtOnce, Workers: o.workers, QPS: o.QPS, Burst: o.Burst,
		MetricsAddress: flags.Served(o.MetricsAddress), HealthAddress: flags.Served(o.HealthProbeAddress),
	}
	if o.aggregator {
		cfg.Offers = o.offers.Config()
		cfg.IPAM = o.ipam.Config()
	}
	return cfg, nil
}

func (o *brokerOptions) run(ctx context.Context, log logr.Logger, home *rest.Config, built build.Info) error {
	cfg, err := o.config()
	if err != nil {
		return err
	}
	cfg.Log, cfg.Home = log, home
	return o.tracing.Traced(ctx, log, "liqo-broker", built.Version, o.podName, func(tracer trace.Tracer) error {
		cfg.Tracer = tracer
		return broker.Run(ctx, cfg)
	})
}
