package retry

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	liqofake "github.com/liqotech/liqo/pkg/client/clientset/versioned/fake"
	"github.com/liqotech/liqo/pkg/consts"
)

func TestOnlyPodsOfUnmappedNamespacesFallBack(t *testing.T) {
	namespaceMap := func(tenant, cluster, namespace string, phase offloadingv1beta1.MappingPhase) runtime.Object {
		return &offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "map", Labels: map[string]string{consts.RemoteClusterID: cluster}},
			Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
				namespace: {RemoteNamespace: namespace + "-home", Phase: phase},
			}},
		}
	}
	accepted, down := offloadingv1beta1.MappingAccepted, errors.New("connection refused")
	for name, tc := range map[string]struct {
		objects []runtime.Object
		broken  error
		want    error // nil: the pod falls back
	}{
		"its namespace is mapped": {
			objects: []runtime.Object{namespaceMap("liqo-tenant-p1", "p1", "ns", accepted)}, want: errNotReady,
		},
		"the API server does not answer": {broken: down, want: down},
		"there is no map":                {},
		"another namespace is mapped":    {objects: []runtime.Object{namespaceMap("liqo-tenant-p1", "p1", "other", accepted)}},
		"the remote cluster has no namespace yet": {
			objects: []runtime.Object{namespaceMap("liqo-tenant-p1", "p1", "ns", offloadingv1beta1.MappingCreationLoopBackOff)},
		},
		"the map is of another remote cluster":   {objects: []runtime.Object{namespaceMap("liqo-tenant-p1", "p2", "ns", accepted)}},
		"the map is of another tenant namespace": {objects: []runtime.Object{namespaceMap("liqo-tenant-p2", "p1", "ns", accepted)}},
	} {
		t.Run(name, func(t *testing.T) {
			liqo := liqofake.NewSimpleClientset(tc.objects...)
			if tc.broken != nil {
				liqo.PrependReactor("list", "namespacemaps", func(k8stesting.Action) (bool, runtime.Object, error) {
					return true, nil, tc.broken
				})
			}
			orphans := &scripted{ready: true}
			fallback := unmappedFallback{
				FallbackReflector: scriptedFallback{orphans},
				mappings:          NewMappings(liqo.OffloadingV1beta1().NamespaceMaps("liqo-tenant-p1"), "p1"),
			}
			err := fallback.Handle(t.Context(), podName{Namespace: "ns", Name: "a"})
			require.ErrorIs(t, err, tc.want)
			require.Equal(t, tc.want == nil, orphans.handled == 1)
		})
	}
}
