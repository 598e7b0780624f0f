package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestTheApplicationOfAPod(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"no label, no application":      {nil, ""},
		"the recommended label":         {map[string]string{"app.kubernetes.io/name": "web", "app": "x"}, "ns/app.kubernetes.io/name=web"},
		"one instance of several":       {map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "a"}, "ns/app.kubernetes.io/instance=a"},
		"the label that everybody uses": {map[string]string{"app": "web"}, "ns/app=web"},
		"an empty label is no label":    {map[string]string{"app": ""}, ""},
		"the label of Kubernetes' own":  {map[string]string{"k8s-app": "dns"}, "ns/k8s-app=dns"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			pod.Namespace, pod.Labels = "ns", tc.labels
			require.Equal(t, tc.want, AppOf(pod))
		})
	}
}
