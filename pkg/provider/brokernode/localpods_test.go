package brokernode

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/watchlist"
	metricsfake "k8s.io/metrics/pkg/client/clientset/versioned/fake"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
)

func testView() View {
	return View{Node: "liqo-broker", VirtualNode: "p1-gpu", Provider: "p1", LiqoNodeName: "p1-gpu"}
}

func TestLocalPodsAreThoseAssigned(t *testing.T) {
	for name, tc := range map[string]struct {
		asked, sent metav1.ListOptions
	}{
		"the pods of Liqo's node are the view's": {
			metav1.ListOptions{FieldSelector: "spec.nodeName=p1-gpu"},
			metav1.ListOptions{
				FieldSelector: "spec.nodeName=liqo-broker",
				LabelSelector: "brokering.liqo.io/provider=p1,brokering.liqo.io/virtual-node=p1-gpu",
			},
		},
		"what else was asked for stays": {
			metav1.ListOptions{FieldSelector: "spec.nodeName=p1-gpu,status.phase=Running", LabelSelector: "app in (a,b)"},
			metav1.ListOptions{
				FieldSelector: "spec.nodeName=liqo-broker,status.phase=Running",
				LabelSelector: "app in (a,b),brokering.liqo.io/provider=p1,brokering.liqo.io/virtual-node=p1-gpu",
			},
		},
		"the pods of the broker's node are all of them": {
			metav1.ListOptions{FieldSelector: "spec.nodeName=liqo-broker"},
			metav1.ListOptions{FieldSelector: "spec.nodeName=liqo-broker"},
		},
		"the pods of every node but one pass unchanged": {
			metav1.ListOptions{FieldSelector: "spec.nodeName!=p1-gpu"},
			metav1.ListOptions{FieldSelector: "spec.nodeName!=p1-gpu"},
		},
		"all pods pass unchanged": {metav1.ListOptions{LabelSelector: "app=a"}, metav1.ListOptions{LabelSelector: "app=a"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			lens := testView().LocalPods(client)
			_, err := lens.CoreV1().Pods("").List(t.Context(), tc.asked)
			require.NoError(t, err)
			watching, err := lens.CoreV1().Pods("").Watch(t.Context(), tc.asked)
			require.NoError(t, err)
			watching.Stop()

			actions := client.Actions()
			require.Len(t, actions, 2)
			listed := actions[0].(k8stesting.ListAction).GetListRestrictions()
			watched := actions[1].(k8stesting.WatchAction).GetWatchRestrictions()
			for _, sent := range []k8stesting.ListRestrictions{listed, {Labels: watched.Labels, Fields: watched.Fields}} {
				require.Equal(t, tc.sent.FieldSelector, sent.Fields.String())
				require.Equal(t, tc.sent.LabelSelector, sent.Labels.String())
			}
		})
	}
}

func TestAWatchKeepsItsOtherOptions(t *testing.T) {
	asked := metav1.ListOptions{
		FieldSelector: "spec.nodeName=p1-gpu", AllowWatchBookmarks: true, ResourceVersion: "7",
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
	sent, err := testView().podsOf(asked)
	require.NoError(t, err)
	asked.FieldSelector, asked.LabelSelector = sent.FieldSelector, sent.LabelSelector
	require.Equal(t, asked, sent)

	_, err = testView().podsOf(metav1.ListOptions{FieldSelector: "spec.nodeName"})
	require.Error(t, err)
}

func TestTheLensKeepsWhatTheClientIs(t *testing.T) {
	require.True(t, watchlist.DoesClientNotSupportWatchListSemantics(testView().LocalPods(fake.NewClientset())))
	require.False(t, watchlist.DoesClientNotSupportWatchListSemantics(testView().LocalPods(nil)))

	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"}})
	_, err := testView().LocalPods(client).CoreV1().Pods("ns").Get(t.Context(), "other", metav1.GetOptions{})
	require.NoError(t, err)
}

func TestUsageIsOfOwnPodsOnly(t *testing.T) {
	client := metricsfake.NewSimpleClientset()
	usage := testView().Metrics(func(namespace string) metricsclient.PodMetricsInterface {
		return client.MetricsV1beta1().PodMetricses(namespace)
	})
	_, err := usage("ns-home").List(t.Context(), metav1.ListOptions{LabelSelector: "a=b"})
	require.NoError(t, err)
	require.Equal(t, "a=b,offloading.liqo.io/nodename=p1-gpu",
		client.Actions()[0].(k8stesting.ListAction).GetListRestrictions().Labels.String())
}
