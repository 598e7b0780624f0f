package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/server"
)

func TestCatalogOptionsAreValidated(t *testing.T) {
	require.NoError(t, newCatalogOptions().validate())
	for flag, change := range map[string]func(*catalogOptions){
		"--broker-node":                      func(o *catalogOptions) { o.NodeName = "No Name" },
		"--address":                          func(o *catalogOptions) { o.address = "8000" },
		"--tls-cert-file and --tls-key-file": func(o *catalogOptions) { o.certFile = "cert.pem" },
		"--plain-http together with --tls-cert-file": func(o *catalogOptions) {
			o.plainHTTP, o.certFile, o.keyFile = true, "cert.pem", "key.pem"
		},
		"--namespace": func(o *catalogOptions) { o.tlsSecret, o.namespace = "secret", "" },
		"--plain-http together with --client-ca-file": func(o *catalogOptions) { o.plainHTTP, o.clientCA = true, "ca.pem" },
		"--requests-per-second":                       func(o *catalogOptions) { o.limits.PerSecond = 0 },
		"--requests-burst":                            func(o *catalogOptions) { o.limits.Burst = 0 },
		"--streams-per-caller":                        func(o *catalogOptions) { o.limits.Streams = -1 },
		"--streams-in-all":                            func(o *catalogOptions) { o.limits.TotalStreams = 0 },
		"--connections-per-address":                   func(o *catalogOptions) { o.limits.Connections = 0 },
		"--client-qps":                                func(o *catalogOptions) { o.QPS = 0 },
		"--client-max-burst":                          func(o *catalogOptions) { o.Burst = 0 },
		"--metrics-address":                           func(o *catalogOptions) { o.MetricsAddress = "8082" },
		"--profiling-address":                         func(o *catalogOptions) { o.ProfilingAddress = "on" },
		"--health-probe-address":                      func(o *catalogOptions) { o.HealthProbeAddress = "8083" },
		"--log-level":                                 func(o *catalogOptions) { o.LogLevel = "loud" },
		"--log-format":                                func(o *catalogOptions) { o.LogFormat = "xml" },
	} {
		t.Run(flag, func(t *testing.T) {
			o := newCatalogOptions()
			change(o)
			require.ErrorContains(t, o.validate(), flag)
		})
	}
}

func TestAllFaultsOfTheCatalogAreReportedTogether(t *testing.T) {
	err := run(t.Context(), []string{"catalog", "--address=x", "--tls-key-file=k", "--requests-burst=0"}, &bytes.Buffer{}, &bytes.Buffer{})
	for _, part := range []string{"--address=x", "--tls-key-file", "--requests-burst=0"} {
		require.ErrorContains(t, err, part)
	}
}

func TestFlagsOfTheCatalog(t *testing.T) {
	o := newCatalogOptions()
	flags := pflag.NewFlagSet("catalog", pflag.ContinueOnError)
	o.install(flags)
	require.NoError(t, flags.Parse([]string{
		"--broker-node=pool", "--address=127.0.0.1:1", "--tls-cert-file=c", "--tls-key-file=k", "--client-ca-file=a", "--read-auth=true",
		"--anonymous-toggle=true", "--requests-per-second=1.5", "--requests-burst=2", "--streams-per-caller=3",
		"--streams-in-all=4", "--connections-per-address=9",
		"--client-qps=5", "--client-max-burst=6", "--metrics-address=0", "--health-probe-address=:7",
		"--history-interval=8s",
	}))
	require.Equal(t, catalog.Config{
		QPS: 5, Burst: 6, Node: "pool", Address: "127.0.0.1:1",
		TLS:             catalog.TLSConfig{Public: true, CertFile: "c", KeyFile: "k", ClientCAFile: "a"},
		Access:          server.Access{ReadAuth: true, AnonymousToggle: true},
		HistoryInterval: 8 * time.Second,
		Limits:          caller.Limits{PerSecond: 1.5, Burst: 2, Streams: 3, TotalStreams: 4, Connections: 9},
		HealthAddress:   ":7",
	}, o.config())
}

func TestTheSecretOfTheCatalogIsInItsNamespace(t *testing.T) {
	o := newCatalogOptions()
	o.tlsSecret, o.namespace = "secret", "ns"
	require.NoError(t, o.validate())
	require.Equal(t, types.NamespacedName{Namespace: "ns", Name: "secret"}, o.config().TLS.Secret)
	require.Contains(t, o.config().TLS.Names, "liqo-broker-catalog.ns.svc")
}

// TestFlagsOfTheCatalogAreKept compares them with testdata/catalog-flags.txt, so that a changed name or default is
// noticed.
func TestFlagsOfTheCatalogAreKept(t *testing.T) {
	flags := pflag.NewFlagSet("catalog", pflag.ContinueOnError)
	newCatalogOptions().install(flags)
	var have strings.Builder
	flags.VisitAll(func(flag *pflag.Flag) {
		if !strings.HasPrefix(flag.Name, "klog.") {
			have.WriteString("--" + flag.Name + "=" + flag.DefValue + " (" + flag.Value.Type() + ")\n")
		}
	})
	file := filepath.Join("testdata", "catalog-flags.txt")
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(have.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), have.String())
}
