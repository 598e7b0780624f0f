package main

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/liqotech/liqo/pkg/utils/args"
	"github.com/stretchr/testify/require"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
)

// validBroker returns valid options.
func validBroker() *brokerOptions {
	o := newBrokerOptions()
	o.orchestrator, o.nodeIP, o.podName, o.namespace = true, "10.0.0.1", "broker-0", "liqo-broker"
	return o
}

func TestBrokerOptionsAreValidated(t *testing.T) {
	require.NoError(t, validBroker().validate())
	for flag, change := range map[string]func(*brokerOptions){
		"--with-catalog, --with-orchestrator, --with-aggregator": func(o *brokerOptions) { o.orchestrator = false },
		"--broker-node":                func(o *brokerOptions) { o.NodeName = "No Name" },
		"--node-ip":                    func(o *brokerOptions) { o.nodeIP = "here" },
		"--namespace":                  func(o *brokerOptions) { o.namespace = "" },
		"--pod-name":                   func(o *brokerOptions) { o.podName = "" },
		"--provider-selector":          func(o *brokerOptions) { o.providerSelector = "a in b" },
		"--consumer-selector":          func(o *brokerOptions) { o.consumerSelector = "a in b" },
		"--namespace-mapping-strategy": func(o *brokerOptions) { o.namespaceMapping = "SelectedName" },
		"--offer-class":                func(o *brokerOptions) { o.offers.Class = "default" },
		"--overcommit":                 func(o *brokerOptions) { o.offers.Overcommit = 0 },
		"--offer-hysteresis":           func(o *brokerOptions) { o.offers.Hysteresis = "5" },
		"--offer-interval":             func(o *brokerOptions) { o.offers.Interval = 0 },
		"--offer-ingress-class":        func(o *brokerOptions) { o.offers.IngressClasses.Classes = []args.ClassName{{Name: "a b"}} },
		"--offer-load-balancer-class":  func(o *brokerOptions) { o.offers.LoadBalancerClasses.Classes = []args.ClassName{{}} },
		"--listen-port":                func(o *brokerOptions) { o.listenPort = 0 },
		"--certificate-type":           func(o *brokerOptions) { o.certificateType = "paper" },
		"--kubelet-authorization-mode": func(o *brokerOptions) { o.AuthorizationMode = "Maybe" },
		"--ipam-address":               func(o *brokerOptions) { o.ipam.Address = "6000" },
		"--ipam-tls-cert-file and --ipam-tls-private-key-file": func(o *brokerOptions) { o.ipam.KeyFile = "key.pem" },
		"--ipam-insecure": func(o *brokerOptions) {
			o.ipam.Insecure, o.ipam.CertFile, o.ipam.KeyFile = true, "cert.pem", "key.pem"
		},
		"--ipam-tls-cert-file is empty":    func(o *brokerOptions) { o.aggregator, o.certificateType = true, "self-signed" },
		"--ipam-qps":                       func(o *brokerOptions) { o.ipam.Limits.PerSecond = 0 },
		"--ipam-burst":                     func(o *brokerOptions) { o.ipam.Limits.Burst = -1 },
		"--ipam-max-concurrent":            func(o *brokerOptions) { o.ipam.Limits.Concurrent = 0 },
		"--probe-interval":                 func(o *brokerOptions) { o.times.ProbeInterval = 0 },
		"--probe-timeout":                  func(o *brokerOptions) { o.times.ProbeTimeout = -time.Second },
		"--failover-after":                 func(o *brokerOptions) { o.times.FailoverAfter = 0 },
		"--suspicion-window":               func(o *brokerOptions) { o.times.SuspicionWindow = 0 },
		"--suspicion-limit":                func(o *brokerOptions) { o.times.SuspicionLimit = time.Minute },
		"--pending-timeout":                func(o *brokerOptions) { o.times.PendingTimeout = -1 },
		"--reserve-after":                  func(o *brokerOptions) { o.times.ReserveAfter = -1 },
		"--refusal-memory":                 func(o *brokerOptions) { o.times.RefusalMemory = 0 },
		"--status-interval":                func(o *brokerOptions) { o.times.StatusInterval = 0 },
		"--request-timeout":                func(o *brokerOptions) { o.times.RequestTimeout = 0 },
		"--leader-election-retry-period":   func(o *brokerOptions) { o.retryPeriod = 0 },
		"--leader-election-lease-duration": func(o *brokerOptions) { o.leaseDuration = o.renewDeadline },
		"--node-lease-duration":            func(o *brokerOptions) { o.nodeLeaseDuration = 0 },
		"--moves-at-once":                  func(o *brokerOptions) { o.movesAtOnce = 0 },
		"--workers":                        func(o *brokerOptions) { o.workers = -1 },
		"--client-qps":                     func(o *brokerOptions) { o.QPS = 0 },
		"--client-max-burst":               func(o *brokerOptions) { o.Burst = 0 },
		"--metrics-address":                func(o *brokerOptions) { o.MetricsAddress = "8080" },
		"--profiling-address":              func(o *brokerOptions) { o.ProfilingAddress = "on" },
		"--health-probe-address":           func(o *brokerOptions) { o.HealthProbeAddress = "8081" },
		"--tracing-endpoint=collector":     func(o *brokerOptions) { o.tracing.Endpoint = "collector" },
		"--tracing-sampling=1.5":           func(o *brokerOptions) { o.tracing.Sampling = 1.5 },
		"--tracing-sampling=NaN":           func(o *brokerOptions) { o.tracing.Sampling = math.NaN() },
		"without --tracing-endpoint":       func(o *brokerOptions) { o.tracing.Insecure = true },
		"--tracing-insecure together": func(o *brokerOptions) {
			o.tracing = flags.Tracing{Endpoint: "collector:4317", Insecure: true, CAFile: "ca.pem", Sampling: 1}
		},
		"--log-level":  func(o *brokerOptions) { o.LogLevel = "loud" },
		"--log-format": func(o *brokerOptions) { o.LogFormat = "xml" },
	} {
		t.Run(flag, func(t *testing.T) {
			o := validBroker()
			change(o)
			require.ErrorContains(t, o.validate(), flag)
		})
	}
}

func TestAllFaultsOfTheBrokerAreReportedTogether(t *testing.T) {
	faulty := []string{"broker", "--node-ip=x", "--pod-name=p", "--namespace=n", "--workers=0"}
	err := run(t.Context(), faulty, &bytes.Buffer{}, &bytes.Buffer{})
	for _, part := range []string{"--with-orchestrator", "--node-ip=x", "--workers=0"} {
		require.ErrorContains(t, err, part)
	}
}

func TestExplainRefusesBadArguments(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), []string{"explain", "pod", "--output=xml"}, &bytes.Buffer{}, &bytes.Buffer{}), "--output=xml")
	require.Error(t, run(t.Context(), []string{"explain"}, &bytes.Buffer{}, &bytes.Buffer{}))
}

func TestWhichServicesLookAfterConsumers(t *testing.T) {
	o := validBroker()
	o.orchestrator, o.aggregator = false, true
	require.NoError(t, o.validate())
	for _, on := range []*bool{&o.orchestrator, &o.aggregator} {
		o.orchestrator, o.aggregator = false, false
		*on = true
		cfg, err := o.offloading()
		require.NoError(t, err)
		require.Equal(t, "liqo-broker", cfg.BrokerNode)
	}
	o.orchestrator, o.aggregator, o.catalog = false, false, true
	require.NoError(t, o.validate(), "the catalog is a service, too")
	cfg, err := o.offloading()
	require.NoError(t, err)
	require.Nil(t, cfg, "which leaves namespaces alone")
}

// When the leader crashes, the next one must renew the lease of the Node long before Kubernetes assumes that the Node
// is lost: 50 s after the last renewal since v1.32, 40 s before (NodeMonitorGracePeriod in
// kube-controller-manager's pkg/controller/nodelifecycle/config/v1alpha1/defaults.go).
func TestTheNodeOutlivesACrashOfTheLeader(t *testing.T) {
	const (
		gracePeriod = 40 * time.Second
		// start is the time for the first requests of a new leader, until it renews the lease.
		start = 5 * time.Second
		// margin is the time for a slow API server.
		margin = 10 * time.Second
	)
	o := newBrokerOptions()
	// virtual-kubelet renews a Node's lease after a quarter of its duration.
	renewal := time.Duration(node.DefaultRenewIntervalFraction * float64(o.nodeLeaseDuration))
	// A replica tries to lead after the retry period and up to 1.2 times that more (wait.JitterUntil in client-go's
	// elector). It may see the last renewal of the leader's lease, and the expiry of the lease, that much later.
	attempt := time.Duration((1 + leaderelection.JitterFactor) * float64(o.retryPeriod))
	worst := renewal + attempt + o.leaseDuration + attempt + start
	require.Equal(t, 29400*time.Millisecond, worst, "the figure in docs/broker.md")
	require.GreaterOrEqual(t, gracePeriod-worst, margin)
}
