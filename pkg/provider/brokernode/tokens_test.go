package brokernode

import (
	"context"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/manager"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/options"
)

// handled records the names that the wrapped reflector would have handled.
type handled struct {
	manager.NamespacedReflector
	names []string
}

func (h *handled) Handle(_ context.Context, name string) error {
	h.names = append(h.names, name)
	return nil
}

func TestTokensOfConsumersStayHere(t *testing.T) {
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "web-token", Labels: map[string]string{forge.LiqoSASecretForServiceAccountKey: "default"},
		Annotations: map[string]string{forge.LiqoSASecretForPodNameKey: "web"},
	}}
	plain := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "api-token"}}
	remote := func(name string, labels map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: "remote", Name: name, UID: types.UID(name), Labels: labels, Annotations: token.Annotations,
		}}
	}
	forwarded := map[string]string{forge.LiqoSASecretForServiceAccountKey: "default"}
	maps.Copy(forwarded, forge.ReflectionLabels())
	for name, tc := range map[string]struct {
		forward bool
		want    []string
		// at has the provider's objects before, and stay has the ones of them that remain afterwards.
		at   []runtime.Object
		stay []string
	}{
		"by default":     {want: []string{"api-token", "gone"}},
		"unless enabled": {forward: true, want: []string{"web-token", "api-token", "gone"}},
		"what was forwarded before is removed": {
			want: []string{"api-token", "gone"}, at: []runtime.Object{remote("web-token", forwarded), remote("of-another-pod", forwarded)},
			stay: []string{"of-another-pod"},
		},
		"but not objects of others": {
			want: []string{"api-token", "gone"}, at: []runtime.Object{remote("web-token", nil)}, stay: []string{"web-token"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			factory := informers.NewSharedInformerFactory(fake.NewClientset(token, plain), 0)
			provider := fake.NewClientset(tc.at...)
			there := informers.NewSharedInformerFactory(provider, 0)
			below := &handled{}
			view := testView()
			view.ForwardTokens = tc.forward
			reflector := view.Secrets(func(*options.NamespacedOpts) manager.NamespacedReflector { return below })(
				options.NewNamespaced().WithLocal("ns", nil, factory).WithRemote("remote", provider, there))
			for _, f := range []informers.SharedInformerFactory{factory, there} {
				f.Start(t.Context().Done())
				f.WaitForCacheSync(t.Context().Done())
				t.Cleanup(f.Shutdown)
			}
			for _, secret := range []string{"web-token", "api-token", "gone"} {
				require.NoError(t, reflector.Handle(t.Context(), secret))
			}
			require.Equal(t, tc.want, below.names)
			left, err := provider.CoreV1().Secrets("remote").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			var names []string
			for i := range left.Items {
				names = append(names, left.Items[i].Name)
			}
			require.Equal(t, tc.stay, names)
		})
	}
}

func TestAPodStartsWithoutItsToken(t *testing.T) {
	source := func(secret string) corev1.VolumeProjection {
		return corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}
	}
	shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	shadow.Spec.Pod.Volumes = []corev1.Volume{
		{Name: "data"},
		{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{source("web-token"), source("other"), {ConfigMap: &corev1.ConfigMapProjection{}}},
		}}},
	}
	before := shadow.DeepCopy()
	sources := withoutTokens(shadow).Spec.Pod.Volumes[1].Projected.Sources
	require.Equal(t, ptr.To(true), sources[0].Secret.Optional)
	require.Nil(t, sources[1].Secret.Optional)
	require.Equal(t, before, shadow)
}
