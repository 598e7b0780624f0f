package refusal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// A virtual kubelet runs on another machine than the broker, which wrote the time of the assignment.
func TestARefusalCountsByWhicheverClock(t *testing.T) {
	for _, behind := range []time.Duration{0, 3 * time.Second, 10 * time.Minute} {
		assigned := pod()
		client := fake.NewClientset(assigned)
		_, err := Report(t.Context(), client.CoreV1().Pods("ns"), assigned,
			Refusal{VirtualNode: "p1-gpu", Reason: Forbidden, Message: "full", At: noon.Add(-behind)})
		require.NoError(t, err)
		var refused *corev1.Pod
		refused, err = client.CoreV1().Pods("ns").Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		_, found := Of(refused)
		require.True(t, found, "its clock is %s behind", behind)
	}
}
