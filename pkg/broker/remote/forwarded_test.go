package remote

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// honestPod is one with much in it: in all but one of 500 there is less.
func honestPod(name string) corev1.Pod {
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	started, at := true, metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Local())
	container := corev1.ContainerStatus{
		Name: "main", Image: "registry/image:v1", ImageID: "registry/image@sha256:0", ContainerID: "containerd://0", Started: &started,
		RestartCount: 2, Ready: true,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 1, Reason: "Error", Message: "it <ended>\n", StartedAt: at, FinishedAt: at, ContainerID: "containerd://0",
		}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}},
	}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid of " + name),
			Annotations: map[string]string{v1alpha1.PodUIDAnnotation: "here", "large": strings.Repeat("x", 100<<10)},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Env: []corev1.EnvVar{{Name: "LARGE", Value: strings.Repeat("y", 50<<10)}},
			Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts},
		}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "Evicted", Message: "no room",
			Conditions: []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodFailed", Message: "no", LastTransitionTime: at,
			}},
			ContainerStatuses: []corev1.ContainerStatus{container}, InitContainerStatuses: []corev1.ContainerStatus{container, container},
		},
	}
}

// A chunk of 500 pods with 150 kB each is read, and all of their statuses that the broker uses.
func TestAnHonestListIsRead(t *testing.T) {
	const number = 500
	pods := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	var names []string
	for i := range number {
		names = append(names, fmt.Sprint("pod-", i))
		pods.Items = append(pods.Items, honestPod(names[i]))
	}
	want := pods.Items[7].Status
	// Fields that the kubelet adds, and that the broker does not read.
	pods.Items[7].Status.ContainerStatuses = []corev1.ContainerStatus{*want.ContainerStatuses[0].DeepCopy()}
	pods.Items[7].Status.ContainerStatuses[0].AllocatedResources = pods.Items[7].Spec.Containers[0].Resources.Requests
	text, err := json.Marshal(&pods)
	require.NoError(t, err)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/shadowpods") {
			_, _ = w.Write([]byte(`{"kind":"ShadowPodList","apiVersion":"offloading.liqo.io/v1beta1","metadata":{},"items":null}`))
			return
		}
		_, _ = w.Write(text)
	}))
	defer server.Close()
	began := time.Now()
	found, err := connected(t, server).Forwarded(t.Context(), "p1", "ns", names)
	require.NoError(t, err)
	t.Logf("%d MiB are read in %s", len(text)>>20, time.Since(began))
	require.Len(t, found, number)
	require.Equal(t, &want, found["pod-7"].Of("here").Status)
	require.Nil(t, found["pod-7"].Of("another").Status)
}
