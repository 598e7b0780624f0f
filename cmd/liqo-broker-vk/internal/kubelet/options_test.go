package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/cmd/virtual-kubelet/root"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/resources"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
)

func stockFlags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("virtual-kubelet", pflag.ContinueOnError)
	root.InstallFlags(flags, root.NewOpts())
	return flags
}

func ourFlags() (*Options, *pflag.FlagSet) {
	o, flags := NewOptions(), pflag.NewFlagSet("liqo-broker-vk", pflag.ContinueOnError)
	o.Install(flags)
	return o, flags
}

func TestEveryFlagOfLiqoIsThereWithTheSameDefault(t *testing.T) {
	_, ours := ourFlags()
	stockFlags().VisitAll(func(stock *pflag.Flag) {
		flag := ours.Lookup(stock.Name)
		require.NotNil(t, flag, "--%s", stock.Name)
		require.Equal(t, stock.DefValue, flag.DefValue, "--%s", stock.Name)
		require.Equal(t, stock.Value.Type(), flag.Value.Type(), "--%s", stock.Name)
		require.Equal(t, stock.NoOptDefVal, flag.NoOptDefVal, "--%s", stock.Name)
	})
}

// TestOwnFlags compares our additional flags with testdata/flags.txt, so that a changed name or default is noticed.
func TestOwnFlags(t *testing.T) {
	stock := stockFlags()
	_, ours := ourFlags()
	var added []string
	ours.VisitAll(func(flag *pflag.Flag) {
		if stock.Lookup(flag.Name) == nil {
			added = append(added, "--"+flag.Name+"="+flag.DefValue+" ("+flag.Value.Type()+")")
		}
	})
	file := filepath.Join("testdata", "flags.txt")
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(added, "\n")+"\n"), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), strings.Join(added, "\n")+"\n")
}

// liqoArguments are the arguments that liqo-controller-manager and the webhook of Liqo v1.2.0 pass.
func liqoArguments() []string {
	return []string{
		"--foreign-cluster-id=p1", "--nodename=p1-node", "--node-ip=10.1.2.3", "--tenant-namespace=liqo-tenant-p1",
		"--liqo-namespace=liqo", "--home-cluster-id=home", "--local-podcidr=10.244.0.0/16", "--local-podcidr=fd00::/64",
		"--enable-storage", "--virtual-storage-class-name=liqo", "--remote-real-storage-class-name=fast",
		"--enable-ingress", "--remote-real-ingress-class-name=nginx",
		"--enable-load-balancer", "--remote-real-load-balancer-class-name=lb",
		"--pod-reflection-workers=7", "--event-reflection-workers=0",
		"--service-reflection-type=AllowList", "--secret-reflection-type=DenyList",
		"--node-extra-annotations=a=b,c=d", "--node-extra-labels=e=f", "--metrics-enabled=true", "--metrics-address=:9999",
		"--foreign-kubeconfig-secret-name=kubeconfig-p1", "--create-node=false", "--node-check-network=false",
	}
}

func liqoEnvironment(t *testing.T) {
	t.Helper()
	t.Setenv("POD_NAME", "vk-p1-node-xyz")
	t.Setenv("POD_NAMESPACE", "liqo-tenant-p1")
	t.Setenv("VIRTUALNODE_NAME", "p1-node")
}

func TestLiqosArgumentsReachTheProvider(t *testing.T) {
	liqoEnvironment(t)
	o, flags := ourFlags()
	require.NoError(t, flags.Parse(append(liqoArguments(),
		"--labels-not-reflected=l1,l2", "--annotations-not-reflected=a1")))
	require.NoError(t, o.validate())

	cfg := o.providerConfig()
	require.EqualValues(t, "home", cfg.HomeCluster)
	require.EqualValues(t, "p1", cfg.ForeignCluster)
	require.Equal(t, "kubeconfig-p1", cfg.KubeconfigSecretName)
	require.Equal(t, "vk-p1-node-xyz", cfg.PodName)
	require.Equal(t, "p1-node", cfg.VirtualNode)
	require.Equal(t, "liqo-tenant-p1", cfg.VirtualNodeNamespace)
	require.Equal(t, "p1-node", cfg.Node.Name)
	require.Equal(t, "10.1.2.3", cfg.Node.IP)
	require.False(t, cfg.Node.Create)
	require.False(t, cfg.Node.CheckNetwork)
	require.Equal(t, map[string]string{"a": "b", "c": "d"}, cfg.Node.ExtraAnnotations)
	require.Equal(t, map[string]string{"e": "f"}, cfg.Node.ExtraLabels)
	require.Equal(t, ":9999", cfg.MetricsAddress)
	require.Equal(t, ":8081", cfg.HealthAddress)
	require.True(t, cfg.Lease.ReflectionEnabled)
	require.Equal(t, []string{"10.244.0.0/16", "fd00::/64"}, cfg.Reflection.LocalPodCIDRs)
	require.Equal(t, []string{"l1", "l2"}, cfg.Reflection.LabelsNotReflected)
	require.Equal(t, []string{"a1"}, cfg.Reflection.AnnotationsNotReflected)
	require.EqualValues(t, 10250, cfg.Kubelet.Port)
	require.Equal(t, kubeletapi.CertificateKubelet, cfg.Kubelet.CertificateType)
	require.Equal(t, kubeletapi.AuthorizationWebhook, cfg.Kubelet.AuthorizationMode)

	require.Equal(t, map[resources.ResourceReflected]offloadingv1beta1.ReflectorConfig{
		resources.Pod:                   {NumWorkers: 7, Type: offloadingv1beta1.CustomLiqo},
		resources.Service:               {NumWorkers: 3, Type: offloadingv1beta1.AllowList},
		resources.EndpointSlice:         {NumWorkers: 10, Type: offloadingv1beta1.AllowList},
		resources.Ingress:               {NumWorkers: 3, Type: offloadingv1beta1.DenyList},
		resources.ConfigMap:             {NumWorkers: 3, Type: offloadingv1beta1.DenyList},
		resources.Secret:                {NumWorkers: 3, Type: offloadingv1beta1.DenyList},
		resources.ServiceAccount:        {NumWorkers: 3, Type: offloadingv1beta1.CustomLiqo},
		resources.PersistentVolumeClaim: {NumWorkers: 3, Type: offloadingv1beta1.CustomLiqo},
		resources.Event:                 {NumWorkers: 0, Type: offloadingv1beta1.DenyList},
	}, cfg.Reflection.Reflectors)
}

func TestOnlyTheVirtualKubeletsOfABrokersNodeTrace(t *testing.T) {
	o := NewOptions()
	o.tracing.Endpoint = "collector:4317"
	require.ErrorContains(t, o.validate(), "--tracing-endpoint=collector:4317: set it only with --broker-node")
	o.brokerNode = "liqo-broker"
	require.NotContains(t, o.validate().Error(), "--tracing-endpoint")
}

func TestValidateNamesEveryFault(t *testing.T) {
	t.Setenv("POD_NAME", "")
	t.Setenv("POD_NAMESPACE", "")
	t.Setenv("VIRTUALNODE_NAME", "")
	o, flags := ourFlags()
	require.NoError(t, flags.Parse([]string{
		"--local-podcidr=10.0.0.0", "--remote-cidr=10.0.0.0", "--secret-reflection-type=Never", "--vk-lease-retry-period=0s", "--nodename=",
		"--vk-lease-renew-interval=20s", "--node-lease-duration=1ms", "--node-ping-timeout=0s", "--node-ping-interval=-1s",
		"--log-level=loud", "--log-format=xml", "--kubelet-authorization-mode=RBAC", "--health-probe-address=8081",
		"--metrics-enabled", "--metrics-address=nowhere", "--enable-profiling", "--profiling-address=x", "--listen-port=0",
		"--cert-dir=", "--startup-timeout=0s", "--request-timeout=-1s", "--tenant-namespace=", "--liqo-namespace=",
		"--tracing-endpoint=collector",
	}))
	err := o.validate()
	require.Error(t, err)
	for _, culprit := range []string{
		"--home-cluster-id", "--foreign-cluster-id", "--foreign-kubeconfig-secret-name", "--node-ip", "--nodename",
		"VIRTUALNODE_NAME", "POD_NAMESPACE", "POD_NAME ", "--local-podcidr=10.0.0.0", "--remote-cidr=10.0.0.0",
		"--secret-reflection-type=Never",
		"--vk-lease-retry-period", "--vk-lease-renew-interval is not below --vk-lease-duration", "--node-lease-duration",
		"--node-ping-timeout", "--node-ping-interval", "--log-level=loud", "--log-format=xml",
		"--kubelet-authorization-mode=RBAC", "--health-probe-address=8081", "--metrics-address=nowhere",
		"--profiling-address=x", "--listen-port", "--cert-dir", "--startup-timeout", "--request-timeout",
		"--tenant-namespace", "--liqo-namespace", "--tracing-endpoint=collector",
	} {
		require.ErrorContains(t, err, culprit)
	}
	require.NotContains(t, err.Error(), "\n")
}

func TestABrokerNodeIsServedInsteadOfAnOwnOne(t *testing.T) {
	liqoEnvironment(t)
	o, flags := ourFlags()
	require.NoError(t, flags.Parse(append(liqoArguments(), "--broker-node=liqo-broker")))
	require.NoError(t, o.validate())
	require.Equal(t, "liqo-broker", o.providerConfig().BrokerNode)
	require.Equal(t, "p1-node", o.providerConfig().Node.Name, "Liqo's own node name stays")
}

func TestFaultsOfABrokerNode(t *testing.T) {
	for name, tc := range map[string]struct {
		virtualNode string
		args        []string
		messages    []string
	}{
		"a node of its own as well": {
			"p1-node",
			[]string{"--broker-node=liqo-broker", "--create-node=true"},
			[]string{"--create-node=true together with --broker-node=liqo-broker", "createNode: false in the VkOptionsTemplate"},
		},
		"no name of a node": {"p1-node", []string{"--broker-node=Liqo_Broker"}, []string{"--broker-node=Liqo_Broker", "name of a node"}},
		"its own node":      {"p1-node", []string{"--broker-node=p1-node"}, []string{"--broker-node and --nodename are both p1-node"}},
		"a VirtualNode that no label can name": {
			strings.Repeat("n", 64),
			[]string{"--broker-node=liqo-broker"},
			[]string{"VIRTUALNODE_NAME=nnnn", "value of a label"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			liqoEnvironment(t)
			t.Setenv("VIRTUALNODE_NAME", tc.virtualNode)
			o, flags := ourFlags()
			require.NoError(t, flags.Parse(append(liqoArguments(), tc.args...)))
			err := o.validate()
			for _, part := range tc.messages {
				require.ErrorContains(t, err, part)
			}
		})
	}
}

func TestValidateAcceptsProbesSwitchedOff(t *testing.T) {
	liqoEnvironment(t)
	o, flags := ourFlags()
	require.NoError(t, flags.Parse(append(liqoArguments(), "--health-probe-address=0")))
	require.NoError(t, o.validate())
	require.Empty(t, o.providerConfig().HealthAddress)
}
