package nodeagent

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Containers of one pod report concurrently. The API server must show the last status, even if an earlier write is
// slow: otherwise a Ready pod would get no requests.
func TestTheNewestStatusOfAPodStays(t *testing.T) {
	var w *podWorker
	var mu sync.Mutex
	var written []corev1.PodStatus
	var later sync.WaitGroup
	overtaken := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var pod corev1.Pod
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&pod))
		if pod.Status.ContainerStatuses[0].Ready {
			close(overtaken)
		} else {
			w.mu.Lock()
			w.containers[0].ready = true
			w.mu.Unlock()
			later.Go(func() { w.report(t.Context()) })
			select {
			case <-overtaken:
			case <-time.After(200 * time.Millisecond): // It waits for this write.
			}
		}
		mu.Lock()
		written = append(written, pod.Status)
		mu.Unlock()
		rw.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(rw).Encode(&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}))
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	w = newPodWorker(New(Config{Client: client}), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "gateway", Namespace: "tenant"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
	})

	w.report(t.Context())
	later.Wait()
	require.Len(t, written, 2)
	assert.True(t, written[1].ContainerStatuses[0].Ready)
}
