package provider

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/pkg/provider/election"
)

func runConfig(t *testing.T, host string) Config {
	t.Helper()
	return Config{
		Log: testr.New(t), Home: &rest.Config{Host: host}, HomeCluster: "home", ForeignCluster: "p1",
		KubeconfigSecretName: "kubeconfig", PodName: "pod", VirtualNode: "vnode", TenantNamespace: "liqo-tenant-p1",
		VirtualNodeNamespace: "liqo-tenant-p1", Node: NodeConfig{Name: "vnode", IP: "127.0.0.1"},
		Lease: LeaseConfig{Times: election.Times{
			Duration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: time.Second,
		}},
		HealthAddress: "127.0.0.1:0", StartupTimeout: time.Minute, RequestTimeout: time.Minute,
	}
}

func TestRunStopsCleanlyWhileTheAPIServerIsStuck(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	asked := make(chan struct{})
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(asked) })
		<-r.Context().Done()
	}))
	defer server.Close()

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, runConfig(t, server.URL)) }()
	<-asked
	stop()
	require.NoError(t, <-ended)
}

func TestRunNamesTheFlagOfAPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	cfg := runConfig(t, "http://127.0.0.1:1")
	cfg.HealthAddress = taken.Addr().String()
	require.ErrorContains(t, Run(t.Context(), cfg), "--health-probe-address="+cfg.HealthAddress)
}
