package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"

	"github.com/liqotech/liqo/cmd/virtual-kubelet/root"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"

	"github.com/capacitorset/liqo-broker-vk/kubelet-v0/internal/kubelet"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
)

// options are the flags and the environment of the virtual kubelet.
type options struct {
	// stock holds the flags of Liqo's own virtual kubelet. Liqo installs them itself, so that they have the same names
	// and defaults. Some of them set package variables of Liqo (restcfg) and klog.
	stock *root.Opts

	remoteIPAM                         string
	remoteIPAMCA, remoteIPAMServerName string
	remoteIPAMInsecure                 bool

	healthProbeAddress  string
	logLevel, logFormat string

	certDir, clientCAFile    string
	kubeletAuthorizationMode string
	profilingAddress         string

	startupTimeout, requestTimeout time.Duration
	strictFlags                    bool
}

// newOptions returns the defaults. They are the defaults of the virtual kubelet of Liqo v1, except for the remote IPAM:
// the server in liqo-network-manager of Liqo v0.x supports plaintext only.
func newOptions() *options {
	return &options{
		stock:              root.NewOpts(),
		remoteIPAMInsecure: true,
		healthProbeAddress: ":8081",
		logLevel:           "info",
		logFormat:          "json",
		certDir:            "/tmp/certs",

		kubeletAuthorizationMode: string(kubeletapi.AuthorizationWebhook),
		profilingAddress:         "127.0.0.1:6060",
		startupTimeout:           2 * time.Minute,
		requestTimeout:           time.Minute,
	}
}

// install binds the options to flags. liqo-controller-manager splits --kubelet-extra-args at commas, so every flag of
// ours takes a value without one.
func (o *options) install(flags *pflag.FlagSet) {
	root.InstallFlags(flags, o.stock)
	flags.StringVar(&o.remoteIPAM, "remote-ipam", o.remoteIPAM,
		"server=HOST[:PORT] of the remote cluster's IPAM (port 6000 by default), which returns the addresses at which the pods "+
			"that the remote cluster forwarded are reached through it")
	flags.BoolVar(&o.remoteIPAMInsecure, "remote-ipam-insecure", o.remoteIPAMInsecure,
		"Connect to the remote IPAM in plaintext, as with the server of Liqo v0.x")
	flags.StringVar(&o.remoteIPAMCA, "remote-ipam-ca", o.remoteIPAMCA,
		"A file with the CA of the remote IPAM's certificate; by default the CA of the remote cluster")
	flags.StringVar(&o.remoteIPAMServerName, "remote-ipam-server-name", o.remoteIPAMServerName,
		"The name that the remote IPAM's certificate is valid for; by default "+ipam.ServiceName)
	flags.StringVar(&o.healthProbeAddress, "health-probe-address", o.healthProbeAddress,
		"The address that the probes (/livez and /readyz) are served on, 0 to disable")
	flags.StringVar(&o.logLevel, "log-level", o.logLevel,
		"The minimum severity of logged messages: debug, info, warn or error; debug sets --klog.v to 4 unless that is set")
	flags.StringVar(&o.logFormat, "log-format", o.logFormat, "The format of the logs: json or console")
	flags.StringVar(&o.kubeletAuthorizationMode, "kubelet-authorization-mode", o.kubeletAuthorizationMode,
		"How callers of the kubelet API are authorised: Webhook (the API server, by SubjectAccessReview) or "+
			"AlwaysAllow (every authenticated caller may do everything)")
	flags.StringVar(&o.clientCAFile, "client-ca-file", o.clientCAFile,
		"The CA of the client certificates accepted by the kubelet API; by default the one published in the "+
			"ConfigMap kube-system/extension-apiserver-authentication")
	flags.StringVar(&o.certDir, "cert-dir", o.certDir, "The directory where the serving certificate is kept")
	flags.StringVar(&o.profilingAddress, "profiling-address", o.profilingAddress,
		"The address that /debug/pprof is served on with --enable-profiling")
	flags.DurationVar(&o.startupTimeout, "startup-timeout", o.startupTimeout,
		"How long to wait at start for missing objects and for API servers that do not answer")
	flags.DurationVar(&o.requestTimeout, "request-timeout", o.requestTimeout,
		"The deadline of each API request that is not a watch or another stream, 0 for none")
	flags.BoolVar(&o.strictFlags, "strict-flags", o.strictFlags, process.StrictUsage)
}

// validate returns all invalid options as one error.
func (o *options) validate() error {
	var f []string
	when := func(wrong bool, what, remedy string) {
		if wrong {
			f = append(f, what+": "+remedy)
		}
	}
	s := o.stock
	when(s.HomeCluster.ClusterID == "", "--home-cluster-id is empty", "give the id of this cluster")
	when(s.ForeignCluster.ClusterID == "", "--foreign-cluster-id is empty", "give the id of the remote cluster")
	when(s.ForeignCluster.ClusterName == "", "--foreign-cluster-name is empty", "give the name of the remote cluster")
	when(s.NodeName == "", "--nodename is empty", "give the name of the virtual node")
	when(s.RemoteKubeconfigSecretName == "", "--foreign-kubeconfig-secret-name is empty",
		"give the name of the Secret with the kubeconfig of the remote cluster")
	when(s.PodName == "", "environment variable POD_NAME is empty", "set it to the name of the pod")
	when(net.ParseIP(s.NodeIP) == nil, "--node-ip="+s.NodeIP, "give the IP address of this pod")
	when(s.ListenPort == 0, "--listen-port=0", "use a port from 1 to 65535")
	when(!slices.Contains([]string{"Webhook", "AlwaysAllow"}, o.kubeletAuthorizationMode),
		"--kubelet-authorization-mode="+o.kubeletAuthorizationMode, "use one of Webhook, AlwaysAllow")
	when(!slices.Contains([]string{"json", "console"}, o.logFormat), "--log-format="+o.logFormat, "use one of json, console")
	_, err := zapcore.ParseLevel(o.logLevel)
	when(err != nil, "--log-level="+o.logLevel, "use one of debug, info, warn, error")
	when(o.startupTimeout <= 0, fmt.Sprintf("--startup-timeout=%s", o.startupTimeout), "use a duration above 0")
	when(o.requestTimeout < 0, fmt.Sprintf("--request-timeout=%s", o.requestTimeout), "use 0 for none, or a duration")
	if o.remoteIPAM != "" {
		_, err := ipam.ParseRemote(o.remoteIPAM)
		if err != nil {
			f = append(f, err.Error())
		}
	}
	when(o.remoteIPAMInsecure && (o.remoteIPAMCA != "" || o.remoteIPAMServerName != ""),
		"--remote-ipam-ca or --remote-ipam-server-name with plaintext", "add --remote-ipam-insecure=false")
	for _, resource := range generic.ReflectorsCustomizableType {
		of := *s.ReflectorsType[string(resource)]
		when(of != string(consts.DenyList) && of != string(consts.AllowList), fmt.Sprintf("--%s-reflection-type=%s", resource, of),
			"use one of DenyList, AllowList")
	}
	if len(f) > 0 {
		return errors.New(strings.Join(f, "; "))
	}
	return nil
}

// config returns the virtual kubelet's Config without Log and Home.
func (o *options) config() (kubelet.Config, error) {
	s := o.stock
	cfg := kubelet.Config{
		HomeCluster:          s.HomeCluster,
		ForeignCluster:       s.ForeignCluster,
		KubeconfigSecretName: s.RemoteKubeconfigSecretName,
		TenantNamespace:      s.TenantNamespace,
		PodName:              s.PodName,
		IPAMServer:           s.LiqoIpamServer,
		Node: kubelet.NodeConfig{
			Name: s.NodeName, IP: s.NodeIP, Create: s.CreateNode,
			LeaseDuration: s.NodeLeaseDuration, PingInterval: s.NodePingInterval, PingTimeout: s.NodePingTimeout,
			CheckNetwork: s.NodeCheckNetwork,
			ExtraLabels:  s.NodeExtraLabels.StringMap, ExtraAnnotations: s.NodeExtraAnnotations.StringMap,
		},
		Reflection: kubelet.ReflectionConfig{
			Reflectors:                 o.reflectors(),
			DisableIPReflection:        s.DisableIPReflection,
			EnableAPIServerSupport:     s.EnableAPIServerSupport,
			HomeAPIServerHost:          s.HomeAPIServerHost,
			HomeAPIServerPort:          s.HomeAPIServerPort,
			EnableStorage:              s.EnableStorage,
			VirtualStorageClassName:    s.VirtualStorageClassName,
			RemoteRealStorageClassName: s.RemoteRealStorageClassName,
			LabelsNotReflected:         s.LabelsNotReflected.StringList,
			AnnotationsNotReflected:    s.AnnotationsNotReflected.StringList,
		},
		Lease: kubelet.LeaseConfig{
			Enabled: s.VirtualKubeletLeaseEnabled, Duration: s.VirtualKubeletLeaseLeaseDuration,
			RenewDeadline: s.VirtualKubeletLeaseRenewDeadline, RetryPeriod: s.VirtualKubeletLeaseRetryPeriod,
		},
		API: kubelet.APIConfig{
			Port: s.ListenPort, CertificateType: kubeletapi.CertificateType(s.CertificateType.Value), CertDir: o.certDir,
			ClientCAFile: o.clientCAFile, AuthorizationMode: kubeletapi.AuthorizationMode(o.kubeletAuthorizationMode),
		},
		InformerResyncPeriod: s.InformerResyncPeriod,
		StartupTimeout:       o.startupTimeout,
		RequestTimeout:       o.requestTimeout,
	}
	if o.healthProbeAddress != "0" {
		cfg.HealthAddress = o.healthProbeAddress
	}
	if s.EnableMetrics {
		cfg.MetricsAddress = s.MetricsAddress
	}
	if o.remoteIPAM != "" {
		server, err := ipam.ParseRemote(o.remoteIPAM)
		if err != nil {
			return kubelet.Config{}, err
		}
		cfg.RemoteIPAM = &kubelet.RemoteIPAMConfig{
			Server: server, Insecure: o.remoteIPAMInsecure, CAFile: o.remoteIPAMCA, ServerName: o.remoteIPAMServerName,
		}
	}
	return cfg, nil
}

// reflectors combines workers and types as Liqo does (root.getReflectorsConfigs): resources without a flag have Liqo's
// fixed type.
func (o *options) reflectors() map[generic.ResourceReflected]*generic.ReflectorConfig {
	configs := make(map[generic.ResourceReflected]*generic.ReflectorConfig, len(generic.Reflectors))
	for _, resource := range generic.Reflectors {
		of := root.DefaultReflectorsTypes[resource]
		if chosen, ok := o.stock.ReflectorsType[string(resource)]; ok {
			of = consts.ReflectionType(*chosen)
		}
		configs[resource] = &generic.ReflectorConfig{NumWorkers: *o.stock.ReflectorsWorkers[string(resource)], Type: of}
	}
	return configs
}
