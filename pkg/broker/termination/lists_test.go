package termination

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// namespace is one at a provider that has many pods. Its API server answers every request as a real one does: in
// chunks, after a time for each item.
type namespace struct {
	pods int
	// bytesEach is the announced size of each pod; sizes above the limit of a list are announced only.
	bytesEach int
	perItem   time.Duration
	// expires makes every continue token but the first of a list invalid, once.
	expires atomic.Bool
	chunks  atomic.Int64
}

func (n *namespace) serve(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))
	from, _ := strconv.Atoi(query.Get("continue"))
	until := min(n.pods, from+limit)
	if name, one := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=pod-"); one {
		from, _ = strconv.Atoi(name)
		until = from + 1
	}
	w.Header().Set("Content-Type", "application/json")
	if from > 0 && until > from+1 && n.expires.CompareAndSwap(true, false) {
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}`)
		return
	}
	n.chunks.Add(1)
	bytes := n.bytesEach
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
		bytes = 0
	}
	if length := bytes * (until - from); length > 128<<20 {
		w.Header().Set("Content-Length", strconv.Itoa(length)) // It is refused at once.
		_, _ = io.WriteString(w, "{")
		return
	}
	select {
	case <-time.After(time.Duration(until-from) * n.perItem):
	case <-r.Context().Done():
		return
	}
	out := io.Writer(w)
	if r.Header.Get("Accept-Encoding") == "gzip" && limit > 1 {
		w.Header().Set("Content-Encoding", "gzip")
		zip, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
		defer zip.Close()
		out = zip
	}
	next := ""
	if until < n.pods && query.Get("fieldSelector") == "" {
		next = strconv.Itoa(until)
	}
	fmt.Fprintf(out, `{"kind":"List","apiVersion":"v1","metadata":{"continue":%q},"items":[`, next)
	for i := from; i < until; i++ {
		if i > from {
			_, _ = io.WriteString(out, ",")
		}
		_, _ = out.Write(podOf(i))
	}
	_, _ = io.WriteString(out, "]}")
}

func podOf(i int) []byte {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint("there-", i)),
			Annotations: map[string]string{v1alpha1.PodUIDAnnotation: "uid"},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	text, _ := json.Marshal(&pod) // The pod is made above.
	return text
}

func checkerOf(t *testing.T, n *namespace, timeout time.Duration) *Checker {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(n.serve))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	untrusted.Wrap(config)
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	liqo, err := liqoclient.NewForConfig(config)
	require.NoError(t, err)
	connections := remote.NewConnections(nil, nil, "")
	connections.Set(&remote.Connection{
		Provider: "q", VirtualNode: "q1", Config: config,
		Kube: kube, Probes: kube.Discovery().RESTClient(), Liqo: liqo,
	})
	return NewChecker(CheckerConfig{Log: logr.Discard(), Connections: connections, Queue: &requeue.Queue{}, Timeout: timeout})
}

func TestPodsOfALargeNamespaceAreAnswered(t *testing.T) {
	for name, tc := range map[string]*struct {
		namespace namespace
		asked     int
		timeout   time.Duration
		// checks is how many the answer takes at most, chunks how many requests.
		checks, chunks int
		expires        bool
	}{
		"five are asked for by name": {
			namespace: namespace{pods: 20_000, perItem: 100 * time.Microsecond}, asked: 5, timeout: time.Second, checks: 1, chunks: 10,
		},
		"all of a list that takes longer than a request may": {
			namespace: namespace{pods: 20_000, perItem: 20 * time.Microsecond},
			asked:     60, timeout: 300 * time.Millisecond, checks: 500, chunks: 5000,
		},
		"a chunk takes longer than a request may": {
			namespace: namespace{pods: 1000, perItem: 5 * time.Millisecond},
			asked:     60, timeout: 300 * time.Millisecond, checks: 500, chunks: 1000,
		},
		"a token expires": {
			namespace: namespace{pods: 2000}, asked: 60, timeout: 10 * time.Second, checks: 2, chunks: 40, expires: true,
		},
		"all pods of a chunk are longer than a list may be": {
			namespace: namespace{pods: 240, bytesEach: 1500 << 10}, asked: 60, timeout: time.Minute, checks: 1, chunks: 12,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := &tc.namespace
			n.expires.Store(tc.expires)
			c := checkerOf(t, n, tc.timeout)
			for i := range tc.asked {
				c.Ask(podNamed(fmt.Sprint("pod-", i*(n.pods/tc.asked))))
			}
			checks := 0
			for ; checks < tc.checks && !c.Ask(podNamed("pod-0")).Known; checks++ {
				c.Check(t.Context(), placed("q1"))
			}
			t.Logf("%d checks, %d chunks", checks, n.chunks.Load())
			for i := range tc.asked {
				answer := c.Ask(podNamed(fmt.Sprint("pod-", i*(n.pods/tc.asked))))
				require.NoError(t, answer.Err)
				require.True(t, answer.Known)
				require.True(t, answer.Present)
				require.Equal(t, corev1.PodRunning, answer.Status.Phase)
			}
			require.LessOrEqual(t, int(n.chunks.Load()), tc.chunks)
		})
	}
}
