package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	flagsutils "github.com/liqotech/liqo/pkg/utils/flags"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/reoffload"
)

// brokerOptions is the command line of the broker.
type brokerOptions struct {
	serviceOptions
	catalog, orchestrator, aggregator bool

	nodeIP           string
	podName          string
	namespace        string
	providerSelector string
	consumerSelector string
	namespaceMapping string
	offers           offerOptions
	ownerClusterRole string

	listenPort               uint16
	certificateType          string
	certDir                  string
	clientCAFile             string
	kubeletAuthorizationMode string

	ipam ipamOptions

	leaseDuration, renewDeadline, retryPeriod time.Duration
	nodeLeaseDuration                         time.Duration

	times          broker.Times
	movesPerSecond float64
	movesBurst     int
	workers        int

	tracing tracingOptions
}

func newBrokerOptions() *brokerOptions {
	return &brokerOptions{
		serviceOptions: newServiceOptions(":8080", ":8081", 200, 400),
		nodeIP:         os.Getenv("POD_IP"), podName: os.Getenv("POD_NAME"), namespace: os.Getenv("POD_NAMESPACE"),
		listenPort:       10250,
		namespaceMapping: string(offloadingv1beta1.DefaultNameMappingStrategyType), offers: newOfferOptions(),
		certificateType: string(kubeletapi.CertificateKubelet), certDir: "/tmp/certs",
		kubeletAuthorizationMode: string(kubeletapi.AuthorizationWebhook),
		ipam:                     newIPAMOptions(),
		leaseDuration:            15 * time.Second, renewDeadline: 10 * time.Second, retryPeriod: 2 * time.Second,
		nodeLeaseDuration: 40 * time.Second,
		times: broker.Times{
			ProbeInterval: 5 * time.Second, ProbeTimeout: 3 * time.Second,
			FailoverAfter: time.Minute, SuspicionWindow: time.Minute, PendingTimeout: 2 * time.Minute,
			RefusalMemory: 5 * time.Minute, StatusInterval: 5 * time.Second, RequestTimeout: 10 * time.Second,
		},
		movesPerSecond: 10, movesBurst: 20, workers: 16,
		tracing: newTracingOptions(),
	}
}

func newBrokerCommand(logs io.Writer) *cobra.Command {
	o := newBrokerOptions()
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "One virtual node for many provider clusters",
		Long: "broker owns one virtual node behind which stand many provider clusters: it chooses one for every pod\n" +
			"bound to the node, watches them, and moves pods away from those that fail.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runBroker(cmd.Context(), o, cmd.Flags(), logs)
		},
	}
	o.install(cmd.Flags())
	return cmd
}

func (o *brokerOptions) install(f *pflag.FlagSet) {
	flagsutils.InitKlogFlags(f)
	o.serviceOptions.install(f)
	f.BoolVar(&o.catalog, "with-catalog", false,
		"Offer the catalog: who is in the federation and what they offer. It is a process of its own (liqo-broker-vk catalog),\n"+
			"to be run beside this one, which does nothing for it")
	f.BoolVar(&o.orchestrator, "with-orchestrator", false, "Offer the orchestrator: consumers choose providers by name or criteria")
	f.BoolVar(&o.aggregator, "with-aggregator", false, "Offer the aggregator: consumers see the sum of all providers")

	f.StringVar(&o.nodeIP, "node-ip", o.nodeIP, "The IP address of this pod, where the API server reaches the kubelet API (environment POD_IP)")
	f.StringVar(&o.podName, "pod-name", o.podName, "The name of this pod (environment POD_NAME)")
	f.StringVar(&o.namespace, "namespace", o.namespace, "The namespace of this pod, where the leader's lease is (environment POD_NAMESPACE)")
	f.StringVar(&o.providerSelector, "provider-selector", o.providerSelector,
		"The label selector of the VirtualNodes whose clusters are providers; empty for all")
	f.StringVar(&o.consumerSelector, "consumer-selector", o.consumerSelector,
		"The label selector of the ForeignClusters of those consumers whose namespaces are offloaded to the providers; empty for all")
	f.StringVar(&o.namespaceMapping, "namespace-mapping-strategy", o.namespaceMapping,
		"How namespaces of consumers are called at the providers: DefaultName or EnforceSameName")
	o.offers.install(f)
	f.StringVar(&o.ownerClusterRole, "owner-cluster-role", o.ownerClusterRole,
		"A ClusterRole that owns the Node, so that it goes with the installation; empty for none")

	f.Uint16Var(&o.listenPort, "listen-port", o.listenPort, "The port of the kubelet API")
	f.StringVar(&o.certificateType, "certificate-type", o.certificateType,
		"Who signs the certificate of the kubelet API: kubelet (the cluster), self-signed, or aws (EKS; the broker's role does not let it "+
			"approve those requests, so somebody else has to)")
	f.StringVar(&o.certDir, "cert-dir", o.certDir, "The directory where a signed certificate is kept")
	f.StringVar(&o.clientCAFile, "client-ca-file", o.clientCAFile,
		"The CA of the client certificates accepted by the kubelet API and the remote IPAM; by default the one that the API server publishes")
	f.StringVar(&o.kubeletAuthorizationMode, "kubelet-authorization-mode", o.kubeletAuthorizationMode,
		"Who authorises the callers of the kubelet API: Webhook or AlwaysAllow")
	o.ipam.install(f)

	f.DurationVar(&o.leaseDuration, "leader-election-lease-duration", o.leaseDuration, "After what time without renewal another replica may lead")
	f.DurationVar(&o.renewDeadline, "leader-election-renew-deadline", o.renewDeadline, "How long the leader tries to renew its lease")
	f.DurationVar(&o.retryPeriod, "leader-election-retry-period", o.retryPeriod, "How often replicas try to lead")
	f.DurationVar(&o.nodeLeaseDuration, "node-lease-duration", o.nodeLeaseDuration, "The duration of the Node's lease")

	f.DurationVar(&o.times.ProbeInterval, "probe-interval", o.times.ProbeInterval, "How often each provider is probed")
	f.DurationVar(&o.times.ProbeTimeout, "probe-timeout", o.times.ProbeTimeout, "How long a provider may take to answer a probe")
	f.DurationVar(&o.times.FailoverAfter, "failover-after", o.times.FailoverAfter,
		"How long a provider must have been unreachable before its pods move, unless a PlacementPolicy says")
	f.DurationVar(&o.times.SuspicionWindow, "suspicion-window", o.times.SuspicionWindow,
		"Within what time most providers must vanish for the broker to suspect itself and move nothing")
	f.DurationVar(&o.times.PendingTimeout, "pending-timeout", o.times.PendingTimeout,
		"How long a pod may be Pending at a provider before it is tried elsewhere, unless a PlacementPolicy says; 0 for ever")
	f.DurationVar(&o.times.RefusalMemory, "refusal-memory", o.times.RefusalMemory,
		"How long a provider that refused a pod is not asked again")
	f.DurationVar(&o.times.StatusInterval, "status-interval", o.times.StatusInterval,
		"The least time between two writes of one ProviderCluster's status")
	f.DurationVar(&o.times.RequestTimeout, "request-timeout", o.times.RequestTimeout, "The deadline of a request to a provider that is not a stream")
	f.Float64Var(&o.movesPerSecond, "moves-per-second", o.movesPerSecond, "How many pods are moved a second at most")
	f.IntVar(&o.movesBurst, "moves-burst", o.movesBurst, "How many pods may be moved at once")
	f.IntVar(&o.workers, "workers", o.workers, "How many pods are looked at in parallel")
	o.tracing.install(f)
	o.tracing.installSampling(f)
}

// validate returns nil or faults: everything that is wrong.
func (o *brokerOptions) validate() error {
	var f faults
	if !o.catalog && !o.orchestrator && !o.aggregator {
		f.add("no service is switched on", "give at least one of --with-catalog, --with-orchestrator, --with-aggregator")
	}
	o.serviceOptions.validate(&f)
	if net.ParseIP(o.nodeIP) == nil {
		f.add(fmt.Sprintf("--node-ip=%s", o.nodeIP), "give the IP address of this pod")
	}
	f.require(o.namespace, "--namespace", "give the namespace of this pod")
	f.require(o.podName, "--pod-name", "give the name of this pod")
	if _, err := labels.Parse(o.providerSelector); err != nil {
		f.add(fmt.Sprintf("--provider-selector=%s", o.providerSelector), "use a label selector: "+err.Error())
	}
	if _, err := labels.Parse(o.consumerSelector); err != nil {
		f.add(fmt.Sprintf("--consumer-selector=%s", o.consumerSelector), "use a label selector: "+err.Error())
	}
	f.oneOf("--namespace-mapping-strategy", o.namespaceMapping, string(offloadingv1beta1.DefaultNameMappingStrategyType),
		string(offloadingv1beta1.EnforceSameNameMappingStrategyType))
	if o.listenPort == 0 {
		f.add("--listen-port=0", "use a port from 1 to 65535")
	}
	f.oneOf("--certificate-type", o.certificateType, string(kubeletapi.CertificateSelfSigned),
		string(kubeletapi.CertificateKubelet), string(kubeletapi.CertificateAWS))
	f.oneOf("--kubelet-authorization-mode", o.kubeletAuthorizationMode,
		string(kubeletapi.AuthorizationWebhook), string(kubeletapi.AuthorizationAlwaysAllow))
	o.offers.validate(&f)
	o.ipam.validate(&f, o.aggregator && o.certificateType == string(kubeletapi.CertificateSelfSigned))
	o.validateTimes(&f)
	o.validateLimits(&f)
	o.tracing.validate(&f)
	if len(f) > 0 {
		return f
	}
	return nil
}

func (o *brokerOptions) validateTimes(f *faults) {
	t := o.times
	f.positive("--probe-interval", t.ProbeInterval)
	f.positive("--probe-timeout", t.ProbeTimeout)
	f.positive("--failover-after", t.FailoverAfter)
	f.positive("--suspicion-window", t.SuspicionWindow)
	f.positive("--refusal-memory", t.RefusalMemory)
	f.positive("--status-interval", t.StatusInterval)
	f.positive("--request-timeout", t.RequestTimeout)
	if t.PendingTimeout < 0 {
		f.add(fmt.Sprintf("--pending-timeout=%s", t.PendingTimeout), "use a duration, or 0 for ever")
	}
	f.positive("--leader-election-retry-period", o.retryPeriod)
	if o.renewDeadline <= o.retryPeriod || o.leaseDuration <= o.renewDeadline {
		f.add(fmt.Sprintf("--leader-election-lease-duration=%s, --leader-election-renew-deadline=%s, --leader-election-retry-period=%s",
			o.leaseDuration, o.renewDeadline, o.retryPeriod), "make each longer than the next")
	}
	if o.nodeLeaseDuration < time.Second {
		f.add(fmt.Sprintf("--node-lease-duration=%s", o.nodeLeaseDuration), "use at least 1s")
	}
}

func (o *brokerOptions) validateLimits(f *faults) {
	f.limits(
		limit{"--moves-per-second", o.movesPerSecond},
		limit{"--moves-burst", float64(o.movesBurst)},
		limit{"--workers", float64(o.workers)},
	)
}

// reoffload returns nil when no service sends pods of consumers on to providers.
func (o *brokerOptions) reoffload() (*reoffload.Config, error) {
	if !o.orchestrator && !o.aggregator {
		return nil, nil //nolint:nilnil // None is an answer.
	}
	consumers, err := labels.Parse(o.consumerSelector)
	if err != nil {
		return nil, err
	}
	return &reoffload.Config{
		Consumers: consumers, Mapping: offloadingv1beta1.NamespaceMappingStrategyType(o.namespaceMapping), BrokerNode: o.nodeName,
	}, nil
}

// config is what the options say to the broker; Log and Home are left to be set.
func (o *brokerOptions) config() (broker.Config, error) {
	selector, err := labels.Parse(o.providerSelector)
	if err != nil {
		return broker.Config{}, err
	}
	reoffloading, err := o.reoffload()
	if err != nil {
		return broker.Config{}, err
	}
	cfg := broker.Config{
		NodeName: o.nodeName, NodeIP: o.nodeIP, OwnerClusterRole: o.ownerClusterRole,
		Namespace: o.namespace, ProviderSelector: selector, Reoffload: reoffloading,
		Kubelet: broker.KubeletConfig{
			Port: o.listenPort, CertificateType: kubeletapi.CertificateType(o.certificateType), CertDir: o.certDir,
			ClientCAFile: o.clientCAFile, AuthorizationMode: kubeletapi.AuthorizationMode(o.kubeletAuthorizationMode),
		},
		Lease: broker.LeaseConfig{
			Duration: o.leaseDuration, RenewDeadline: o.renewDeadline, RetryPeriod: o.retryPeriod, NodeDuration: o.nodeLeaseDuration,
		},
		Times: o.times, MovesPerSecond: o.movesPerSecond, MovesBurst: o.movesBurst, Workers: o.workers, QPS: o.qps, Burst: o.burst,
		MetricsAddress: served(o.metricsAddress), HealthAddress: served(o.healthProbeAddress),
	}
	if o.aggregator {
		cfg.Offers = o.offers.config()
		cfg.IPAM = o.ipam.config()
	}
	return cfg, nil
}

func runBroker(ctx context.Context, o *brokerOptions, flags *pflag.FlagSet, logs io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	log, home, err := o.begin("broker", flags, logs)
	if err != nil {
		return err
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	cfg.Log, cfg.Home = log, home
	built := thisBuild()
	log.Info("Starting the broker", "version", built.Version, "commit", built.Commit, "node", cfg.NodeName)
	err = o.tracing.traced(ctx, log, "liqo-broker", o.podName, func(tracer trace.Tracer) error {
		cfg.Tracer = tracer
		return broker.Run(ctx, cfg)
	})
	if err != nil {
		return err
	}
	log.Info("Stopped")
	return nil
}
