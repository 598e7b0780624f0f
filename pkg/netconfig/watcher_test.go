package netconfig

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
)

const patience = 10 * time.Second

func asUnstructured(t *testing.T, obj any, gvk schema.GroupVersionKind, namespace, name, cluster string) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	require.NoError(t, err)
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetLabels(map[string]string{consts.RemoteClusterID: cluster})
	return u
}

func TestWatcherFollowsTheConfiguration(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	foreign := func(networking bool) *unstructured.Unstructured {
		return asUnstructured(t, foreignCluster(1, networking),
			liqov1beta1.GroupVersion.WithKind("ForeignCluster"), "", "remote", "remote")
	}
	config := func(seen string) *unstructured.Unstructured {
		return asUnstructured(t, configuration([]string{"10.244.0.0/16"}, []string{seen}, nil, nil),
			networkingv1beta1.GroupVersion.WithKind("Configuration"), "liqo-tenant-remote", "remote", "remote")
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			liqov1beta1.ForeignClusterGroupVersionResource:      "ForeignClusterList",
			networkingv1beta1.ConfigurationGroupVersionResource: "ConfigurationList",
		}, foreign(false))
	foreigns := client.Resource(liqov1beta1.ForeignClusterGroupVersionResource)
	configs := client.Resource(networkingv1beta1.ConfigurationGroupVersionResource).Namespace("liqo-tenant-remote")

	ctx, stop := context.WithCancel(t.Context())
	watcher := NewWatcher(client, Options{Cluster: "remote", Log: testr.New(t)})
	changes := make(chan struct{}, 10)
	ended := make(chan error, 1)
	go func() { ended <- watcher.Run(ctx, func() { changes <- struct{}{} }) }()
	next := func() View {
		select {
		case <-changes:
		case <-time.After(patience):
			require.FailNow(t, "the change was not noticed")
		}
		return watcher.View()
	}
	address := func(v View) string {
		shown, _ := translate(v, "10.244.1.2")
		return shown
	}

	<-watcher.Synced()
	require.Equal(t, "10.244.1.2", address(watcher.View()), "networking module off")

	_, err := foreigns.Update(ctx, foreign(true), metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Empty(t, address(next()), "switched on, no Configuration yet")

	_, err = configs.Create(ctx, config("10.30.0.0/16"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, "10.30.1.2", address(next()))

	_, err = configs.Update(ctx, config("10.40.0.0/16"), metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, "10.40.1.2", address(next()))

	stop()
	require.NoError(t, <-ended)
}

// Later versions of Liqo pass the CIDRs as flags, and do not allow a virtual kubelet to read Configurations.
func TestAGivenTableNeedsNoConfiguration(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	cfg := configuration([]string{"10.244.0.0/16"}, []string{"10.30.0.0/16"}, []string{"10.70.0.0/16"}, []string{"10.28.0.0/16"})
	table, err := TableOf(cfg.Spec.Remote.CIDR, cfg.Status.Remote.CIDR)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		options Options
		want    string
	}{
		"translated by the table":             {Options{Table: &table}, "10.30.1.2"},
		"with Configurations forbidden, too":  {Options{Table: &table, NoConfigurations: true}, "10.30.1.2"},
		"no address without table and rights": {Options{NoConfigurations: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
				map[schema.GroupVersionResource]string{
					liqov1beta1.ForeignClusterGroupVersionResource:      "ForeignClusterList",
					networkingv1beta1.ConfigurationGroupVersionResource: "ConfigurationList",
				}, asUnstructured(t, foreignCluster(1, true), liqov1beta1.GroupVersion.WithKind("ForeignCluster"), "", "remote", "remote"))
			test.options.Cluster, test.options.Log = "remote", testr.New(t)
			ctx, stop := context.WithTimeout(t.Context(), patience)
			watcher := NewWatcher(client, test.options)
			ended := make(chan error, 1)
			go func() { ended <- watcher.Run(ctx, func() {}) }()
			select {
			case <-watcher.Synced():
			case <-ctx.Done():
				require.FailNow(t, "the watcher waits")
			}
			shown, _ := translate(watcher.View(), "10.244.1.2")
			require.Equal(t, test.want, shown)
			for _, action := range client.Actions() {
				require.NotEqual(t, "configurations", action.GetResource().Resource)
			}
			stop()
			require.NoError(t, <-ended)
		})
	}
}
