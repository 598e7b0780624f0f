package broker

import (
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
)

func TestReadiness(t *testing.T) {
	up := providerBelief{looked: true, last: observation{up: true, kubelets: map[string]bool{"q1": false, "q2": true}}}
	unseen := providerBelief{}
	lost := up
	lost.lost, lost.last = noon, observation{problem: "no answer within 3s", kubelets: map[string]bool{"q1": true}}
	silent := up
	silent.last.kubelets = map[string]bool{"q1": false}
	stray := up
	stray.strays = map[string]bool{"q2": true}
	unclean := up
	unclean.unclean = true

	for _, tc := range []struct {
		name    string
		p       providerBelief
		network bool
		want    string // Of Ready, Reachable, KubeletReady, NetworkReady, Clean.
		message string
	}{
		{"one live virtual kubelet is enough", up, true, "True True True True True", ""},
		{"what nobody has looked at is not ready", unseen, true, "False Unknown Unknown True True", "Reachable: NotProbedYet"},
		{"a lost provider says why", lost, true, "False False True True True", "Reachable: NoAnswer, no answer within 3s"},
		{"without a virtual kubelet nothing can be sent there", silent, true, "False True False True True", "KubeletReady: LeaseLost, no virtual kubelet holds a live lease"},
		{"a virtual kubelet of another node is of no use", stray, true, "False True False True True", "KubeletReady: ServesAnotherNode, its virtual kubelet " +
			"was not started with --broker-node of this broker: the VirtualNode is older than the options that say so, and has to be made anew"},
		{"without a network nobody can be reached there", up, false, "False True True False True", "NetworkReady: NotConnected, the network to the provider is not established"},
		{"what is left there is another matter", unclean, true, "True True True True False", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			conditions := readiness(&tc.p, tc.network)
			for _, c := range conditions {
				got = append(got, string(c.Status))
			}
			require.Equal(t, tc.want, strings.Join(got, " "))
			require.Equal(t, tc.message, conditions[0].Message)
		})
	}
}

func TestWhichNodeAVirtualKubeletServes(t *testing.T) {
	started := func(args ...string) *offloadingv1beta1.VirtualNode {
		vn := &offloadingv1beta1.VirtualNode{}
		vn.Spec.Template = &offloadingv1beta1.DeploymentTemplate{}
		vn.Spec.Template.Spec.Template.Spec.Containers = []corev1.Container{{Args: args}}
		return vn
	}
	for name, tc := range map[string]struct {
		vn   *offloadingv1beta1.VirtualNode
		want bool
	}{
		"the broker's":                        {started("--nodename=q1", "--broker-node=pool"), true},
		"Liqo's own":                          {started("--nodename=q1", "--create-node=true"), false},
		"that of another broker":              {started("--broker-node=pool2"), false},
		"nobody says what it is started with": {&offloadingv1beta1.VirtualNode{}, true},
	} {
		require.Equal(t, tc.want, serves(tc.vn, "pool"), name)
	}
}

func TestStatusShowsWhatIsGrantedAssignedAndFree(t *testing.T) {
	gib := int64(1 << 30)
	r := resourcesOf(
		scheduler.Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 8 * gib, "nvidia.com/gpu": 2},
		scheduler.Resources{corev1.ResourceCPU: 4500, corev1.ResourceMemory: gib / 2, "other": 1})
	requireQuantity := func(want string, list corev1.ResourceList, name corev1.ResourceName) {
		t.Helper()
		got := list[name]
		require.Equal(t, want, got.String())
	}
	requireQuantity("4500m", r.Assigned, corev1.ResourceCPU)
	requireQuantity("0", r.Free, corev1.ResourceCPU) // What was taken back is not owed.
	requireQuantity("7680Mi", r.Free, corev1.ResourceMemory)
	requireQuantity("2", r.Free, "nvidia.com/gpu")
	require.NotContains(t, r.Assigned, corev1.ResourceName("other"))

	milliseconds := int64(12)
	s := summarize(&v1alpha1.ProviderClusterStatus{Resources: r, KPIs: v1alpha1.KPIs{
		Uptime: v1alpha1.Uptime{LastDay: "0.9876"}, LatencyMilliseconds: &milliseconds,
	}})
	require.Equal(t, v1alpha1.Summary{CPU: "4500m/4", Memory: "512Mi/8Gi", Uptime: "98.8%", Latency: "12ms"}, s)
	require.Equal(t, v1alpha1.Summary{}, summarize(&v1alpha1.ProviderClusterStatus{}), "nothing known, nothing claimed")
}

func TestOnlyKPIsMayWait(t *testing.T) {
	a := v1alpha1.ProviderClusterStatus{Pods: 1, Summary: v1alpha1.Summary{CPU: "1/4", Uptime: "99.0%"}}
	b := *a.DeepCopy()
	b.KPIs.MovedAway, b.Summary.Uptime = 3, "98.0%"
	require.True(t, sameButKPIs(&a, &b))
	b.Pods = 2
	require.False(t, sameButKPIs(&a, &b))

	yes := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Message: "a"}}
	reworded := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Message: "b"}}
	no := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse}}
	require.True(t, sameConditions(yes, reworded))
	require.False(t, sameConditions(yes, no))
}

func TestALeaseIsLiveWhileItsHolderRenewsIt(t *testing.T) {
	lease := func(holder string, renewed time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(15)),
			RenewTime: &metav1.MicroTime{Time: noon.Add(-renewed)},
		}}
	}
	require.True(t, leaseIsLive(lease("vk", 10*time.Second), noon))
	require.True(t, leaseIsLive(lease("vk", 29*time.Second), noon), "clocks differ")
	require.False(t, leaseIsLive(lease("vk", 31*time.Second), noon))
	require.False(t, leaseIsLive(lease("", time.Second), noon), "it was given back")
	require.False(t, leaseIsLive(&coordinationv1.Lease{}, noon))
}

func TestMetricsOfSeveralProvidersBecomeOneText(t *testing.T) {
	merged := map[string]*dto.MetricFamily{}
	require.NoError(t, mergeMetrics(merged, []byte("# TYPE b counter\nb{pod=\"x\"} 1\n# TYPE a gauge\na 3\n")))
	require.NoError(t, mergeMetrics(merged, []byte("# TYPE b counter\nb{pod=\"y\"} 2\n")))
	require.Error(t, mergeMetrics(merged, []byte("no metric\n")))
	text, err := encodeMetrics(merged)
	require.NoError(t, err)
	require.Equal(t, "# TYPE a gauge\na 3\n# TYPE b counter\nb{pod=\"x\"} 1\nb{pod=\"y\"} 2\n", string(text))
}
