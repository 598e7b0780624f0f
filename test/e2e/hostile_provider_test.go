package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/distrust"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// hostileTexts are what an impostor puts into its messages.
const hostileTexts = `\u001b[2J\u0007\n\u202e\u2066\u200b\ufeff<script>`

// impostor answers in the place of a provider's API server.
type impostor struct {
	// answer is how, by a name of attacks.
	answer atomic.Pointer[http.HandlerFunc]
	// canary is a server that no redirect may lead to; visitors are the user agents that came nevertheless.
	canary *httptest.Server

	mu       sync.Mutex
	visitors []string
	bomb     []byte
}

// ServeHTTP attacks the clients of this project. Liqo's own controllers, which ask a provider as well, read answers
// without a bound: a list without end takes all memory of the machine.
func (i *impostor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.UserAgent(), "liqo-broker-vk") {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	(*i.answer.Load())(w, r)
}

// attacks are the answers of an impostor, by what they are.
func (i *impostor) attacks() map[string]http.HandlerFunc {
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	return map[string]http.HandlerFunc{
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, i.canary.URL+r.URL.Path, http.StatusFound)
		},
		"one byte a second": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(time.Second):
				}
			}
		},
		"a gigabyte in a megabyte": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(i.bomb)
		},
		"a list without end": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"List","apiVersion":"v1","items":[{}`)
			items := bytes.Repeat([]byte(`,{"metadata":{"name":"x"}}`), 4000)
			for range 10_000 { // A gigabyte.
				if _, err := w.Write(items); err != nil || r.Context().Err() != nil {
					return
				}
			}
		},
		"a million objects": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{}`)
			for n := range 1_000_000 {
				if _, err := fmt.Fprintf(w, `,{"metadata":{"name":"x-%d"}}`, n); err != nil || r.Context().Err() != nil {
					return
				}
			}
			_, _ = io.WriteString(w, "]}")
		},
		"wrong types": status(http.StatusOK, `{"kind":["List"],"apiVersion":7,"metadata":"x","items":{"a":1},"status":[]}`),
		"control characters": status(http.StatusInternalServerError,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"`+hostileTexts+`","message":"`+
				strings.Repeat(hostileTexts, 2000)+`"}`),
	}
}

// slack is what a pod may take longer beside twice its time without an attack: each attack is measured once.
const slack = 3 * time.Second

// bound has a pod be bound to the broker's Node when it is created.
func bound(p *corev1.Pod) { p.Spec.NodeName = brokerNode }

// hostileProvider has an impostor answer in the place of a provider's API server, with the certificate of one. Pods of the
// others start as before, and the broker's memory stays within bounds.
func (b *brokered) hostileProvider(t *testing.T) {
	const mostMore = 100 << 20
	ns := b.namespace(t)
	others := annotated(brokeringv1alpha1.FilterAnnotation, "provider.id != 'provider2'")
	honest := func(name string) time.Duration {
		return timeToRun(t, name, func(name string) { b.create(t, ns, name, 1, both(bound, others)) },
			func(ctx context.Context, name string) error { return b.runsAt(ctx, ns, name+"-0", "") })
	}
	idle := honest("idle")
	before := b.brokerMemory()

	provider := b.Cluster("provider2")
	b.lies(t, provider, ns)
	require.NoError(t, b.Kill("provider2/kube-apiserver"))
	i := b.impersonate(t, provider)
	t.Cleanup(func() { require.NoError(t, b.Restart(context.Background(), "provider2")) })
	t.Cleanup(i.close)

	most, number := before, 0
	for name, attack := range i.attacks() {
		var probes atomic.Int64
		counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				probes.Add(1)
			}
			attack(w, r)
		})
		i.answer.Store(&counted)
		number++
		var took time.Duration
		memory := b.mostMemoryDuring(func() {
			eventually(t, 30*time.Second, func(ctx context.Context) error {
				if n := probes.Load(); n < 3 { // So two of them have ended: they follow each other.
					return fmt.Errorf("%s: %d probes", name, n)
				}
				return b.reachable(ctx, "provider2", metav1.ConditionFalse)
			})
			took = honest(fmt.Sprintf("during-%d", number))
		})
		most = max(most, memory)
		t.Logf("%s: a pod of another provider runs after %s (%s before), the broker has %d MiB (%d)", name, took, idle, memory>>20, before>>20)
		assert.Less(t, took, 2*idle+slack, name)

		var pc brokeringv1alpha1.ProviderCluster
		require.NoError(t, b.broker.Client.Get(t.Context(), client.ObjectKey{Name: "provider2"}, &pc))
		message := meta.FindStatusCondition(pc.Status.Conditions, brokeringv1alpha1.ProviderReachable).Message
		assert.LessOrEqual(t, len(message), 2048, name)
		assert.NotContains(t, strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return -1
			}
			return '!'
		}, message), "!", "%s: %q", name, message)
	}
	assert.Less(t, most-before, int64(mostMore), "memory of the broker")
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, visitor := range i.visitors {
		assert.NotContains(t, visitor, "liqo-broker-vk", "it followed a redirect")
	}
}

// mostMemoryDuring is the most of brokerMemory that is seen meanwhile.
func (b *brokered) mostMemoryDuring(do func()) (most int64) {
	done, sampled := make(chan struct{}), make(chan int64)
	go func() {
		most := b.brokerMemory()
		for {
			select {
			case <-done:
				sampled <- max(most, b.brokerMemory())
				return
			case <-time.After(100 * time.Millisecond):
				most = max(most, b.brokerMemory())
			}
		}
	}()
	defer func() {
		close(done)
		most = <-sampled
	}()
	do()
	return most
}

// lies are statuses of pods that an API server accepts from a provider, and no kubelet writes.
func lies() map[string]func(s *corev1.PodStatus) {
	shown := func(status *corev1.PodStatus, text string) {
		status.Message, status.Reason = text, text
		for i := range status.Conditions {
			status.Conditions[i].Message, status.Conditions[i].Reason = text, text
		}
	}
	return map[string]func(s *corev1.PodStatus){
		"a phase that there is not":   func(s *corev1.PodStatus) { s.Phase = "Nonsense\u001b[2J" },
		"a phase of half a megabyte":  func(s *corev1.PodStatus) { s.Phase = corev1.PodPhase(strings.Repeat("x", 1<<19)) },
		"characters of control":       func(s *corev1.PodStatus) { shown(s, "\u001b[2J\u0007\u202e\u2066\u200b\ufeff<script>") },
		"texts of a hundred kilobyte": func(s *corev1.PodStatus) { shown(s, strings.Repeat("x", 100<<10)) },
		"a thousand conditions": func(s *corev1.PodStatus) {
			for n := range 1000 {
				s.Conditions = append(s.Conditions, corev1.PodCondition{
					Type: corev1.PodConditionType(fmt.Sprint("Condition", n)), Status: corev1.ConditionTrue,
				})
			}
		},
		"a thousand containers": func(s *corev1.PodStatus) {
			for n := range 1000 {
				s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
					Name: fmt.Sprint("c", n), Ready: true, RestartCount: -7, Image: strings.Repeat("i", 200),
				})
			}
		},
		"it waits again": func(s *corev1.PodStatus) { s.Phase, s.Conditions = corev1.PodPending, nil },
	}
}

// lies has a provider report what is not so of a pod that it has, while pods of others start, and then the truth again.
func (b *brokered) lies(t *testing.T, provider *sandbox.Cluster, ns string) {
	t.Helper()
	b.create(t, ns, "lied-about", 1, only(provider.Name))
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "lied-about-0", provider.Name) })
	key := client.ObjectKey{Namespace: b.broker.RemoteNamespace(ns), Name: "lied-about-0"}
	var truth corev1.Pod
	require.NoError(t, provider.Client.Get(t.Context(), key, &truth))
	report := func(change func(s *corev1.PodStatus)) {
		eventually(t, patient, func(ctx context.Context) error {
			var pod corev1.Pod
			if err := provider.Client.Get(ctx, key, &pod); err != nil {
				return err
			}
			truth.Status.DeepCopyInto(&pod.Status)
			change(&pod.Status)
			return provider.Client.Status().Update(ctx, &pod)
		})
	}
	for name, lie := range lies() {
		report(func(*corev1.PodStatus) {})
		eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "lied-about-0", provider.Name) })
		before := podOf(t, b.broker, ns, "lied-about-0").ResourceVersion
		report(lie)
		var pod *corev1.Pod
		eventually(t, patient, func(context.Context) error {
			if pod = podOf(t, b.broker, ns, "lied-about-0"); pod.ResourceVersion == before {
				return fmt.Errorf("%s: not reflected yet", name)
			}
			return nil
		})
		assert.Contains(t, []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodUnknown}, pod.Status.Phase, name)
		assert.Less(t, pod.Status.Size(), 140<<10, name)
		for _, text := range []string{pod.Status.Message, pod.Status.Reason} {
			assert.Equal(t, distrust.Lines(text), text, name)
		}
		for _, c := range pod.Status.Conditions {
			assert.Equal(t, distrust.Lines(c.Message+c.Reason), c.Message+c.Reason, name)
		}
	}
	report(func(*corev1.PodStatus) {})
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "lied-about-0", provider.Name) })
}

// brokerMemory is the memory of the replica of the broker that has most.
func (b *brokered) brokerMemory() (most int64) {
	status := b.Status()
	for i := range status.Processes {
		if p := &status.Processes[i]; p.Cluster == sandbox.Broker && p.Component == sandbox.BrokerComponent {
			most = max(most, p.ResidentMemory)
		}
	}
	return most
}

type impostorServer struct {
	*impostor
	close func()
}

// impersonate listens where an API server that was killed did.
func (b *brokered) impersonate(t *testing.T, of *sandbox.Cluster) *impostorServer {
	t.Helper()
	certificate, err := of.ServingCertificate()
	require.NoError(t, err)
	address, err := url.Parse(of.Config.Host)
	require.NoError(t, err)
	i := &impostor{bomb: bomb(t)}
	i.canary = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.visitors = append(i.visitors, r.UserAgent())
		_, _ = io.WriteString(w, "ok")
	}))
	refuse := http.HandlerFunc(http.NotFoundHandler().ServeHTTP)
	i.answer.Store(&refuse)
	var listener net.Listener
	eventually(t, 20*time.Second, func(context.Context) (err error) {
		listener, err = net.Listen("tcp", address.Host)
		return err
	})
	server := &http.Server{
		Handler: i, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}},
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.ServeTLS(listener, "", "")
	}()
	return &impostorServer{impostor: i, close: func() {
		_ = server.Close()
		<-ended
		i.canary.Close()
	}}
}

// bomb is a gigabyte of spaces, compressed.
func bomb(t *testing.T) []byte {
	t.Helper()
	var member bytes.Buffer
	compressed := gzip.NewWriter(&member)
	_, err := compressed.Write(bytes.Repeat([]byte(" "), 16<<20))
	require.NoError(t, err)
	require.NoError(t, compressed.Close())
	return bytes.Repeat(member.Bytes(), 64)
}
