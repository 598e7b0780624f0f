package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/liqotech/liqo/cmd/virtual-kubelet/root"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/generic"

	"github.com/capacitorset/liqo-broker-vk/kubelet-v0/internal/kubelet"
)

func stockFlags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("virtual-kubelet", pflag.ContinueOnError)
	root.InstallFlags(flags, root.NewOpts())
	return flags
}

func ourFlags() (*options, *pflag.FlagSet) {
	o, flags := newOptions(), pflag.NewFlagSet("virtual-kubelet", pflag.ContinueOnError)
	o.install(flags)
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

// liqoArguments are the arguments that liqo-controller-manager of Liqo v0.9.4 passes (pkg/vkMachinery/forge), and the
// ones that its webhook appends.
func liqoArguments() []string {
	return []string{
		"--foreign-cluster-id=p1", "--foreign-cluster-name=provider", "--nodename=liqo-provider", "--node-ip=10.1.2.3",
		"--tenant-namespace=liqo-tenant-provider-1", "--home-cluster-id=home", "--home-cluster-name=consumer",
		"--ipam-server=liqo-network-manager.liqo:6000", "--enable-storage", "--remote-real-storage-class-name=fast",
		"--pod-reflection-workers=7", "--event-reflection-workers=0", "--service-reflection-type=AllowList",
		"--labels-not-reflected=l1,l2", "--annotations-not-reflected=a1",
		"--node-extra-annotations=a=b,c=d", "--node-extra-labels=e=f", "--metrics-enabled=true", "--metrics-address=:9999",
		"--foreign-kubeconfig-secret-name=kubeconfig-p1", "--create-node=true", "--node-check-network=false",
	}
}

func TestLiqosArgumentsReachTheKubelet(t *testing.T) {
	t.Setenv("POD_NAME", "vk-1")
	o, flags := ourFlags()
	require.NoError(t, flags.Parse(append(liqoArguments(), "--remote-ipam=server=192.0.2.1:6000")))
	require.NoError(t, o.validate())
	cfg, err := o.config()
	require.NoError(t, err)
	require.Equal(t, "home", cfg.HomeCluster.ClusterID)
	require.Equal(t, "consumer", cfg.HomeCluster.ClusterName)
	require.Equal(t, "provider", cfg.ForeignCluster.ClusterName)
	require.Equal(t, "kubeconfig-p1", cfg.KubeconfigSecretName)
	require.Equal(t, "liqo-network-manager.liqo:6000", cfg.IPAMServer)
	require.Equal(t, &kubelet.RemoteIPAMConfig{Server: "192.0.2.1:6000", Insecure: true}, cfg.RemoteIPAM)
	require.Equal(t, "10.1.2.3", cfg.Node.IP)
	require.True(t, cfg.Node.Create)
	require.False(t, cfg.Node.CheckNetwork)
	require.Equal(t, map[string]string{"a": "b", "c": "d"}, cfg.Node.ExtraAnnotations)
	require.Equal(t, []string{"l1", "l2"}, cfg.Reflection.LabelsNotReflected)
	require.Equal(t, ":9999", cfg.MetricsAddress)
	require.Equal(t, generic.ReflectorConfig{NumWorkers: 7, Type: consts.CustomLiqo}, *cfg.Reflection.Reflectors[generic.Pod])
	require.Equal(t, generic.ReflectorConfig{NumWorkers: 3, Type: consts.AllowList}, *cfg.Reflection.Reflectors[generic.Service])
	require.Zero(t, cfg.Reflection.Reflectors[generic.Event].NumWorkers)
	require.Len(t, cfg.Reflection.Reflectors, len(generic.Reflectors))
}

func TestFailuresNameTheFlag(t *testing.T) {
	t.Setenv("POD_NAME", "vk-1")
	t.Setenv("KUBECONFIG", "/does/not/exist")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"an unknown flag":     {[]string{"--nope"}, []string{"unknown flag: --nope (see 'virtual-kubelet --help')"}},
		"every fault at once": {nil, []string{"--home-cluster-id is empty", "--foreign-cluster-id is empty", "--node-ip="}},
		"no cluster to reach": {liqoArguments(), []string{"--home-kubeconfig"}},
		"an ignored flag":     {append(liqoArguments(), "--later=1"), []string{"--home-kubeconfig"}},
		"a strict one":        {append(liqoArguments(), "--later=1", "--strict-flags=true"), []string{"unknown flag: --later"}},
		"a remote IPAM": {
			append(liqoArguments(), "--remote-ipam=192.0.2.1"),
			[]string{"--remote-ipam=192.0.2.1: use server=HOST[:PORT]"},
		},
		"TLS with plaintext": {append(liqoArguments(), "--remote-ipam-ca=/ca"), []string{"--remote-ipam-insecure=false"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out, logs bytes.Buffer
			err := run(t.Context(), tc.args, &out, &logs)
			for _, part := range tc.want {
				require.ErrorContains(t, err, part)
			}
		})
	}
}
