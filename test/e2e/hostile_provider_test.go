package e2e

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// hostileText is the text that a hostile provider puts into its answers: control characters for terminals, invisible
// characters, characters that reverse the direction of text or cover adjacent lines, and markup.
var hostileText = "\x1b[2J\a\x00\r\u009b2J\u202e\u2066\u200b\ufeff\u2028<script>a" + strings.Repeat("\u0301", 100)

// impostor answers in place of a provider's API server.
type impostor struct {
	// answer is the current attack.
	answer atomic.Pointer[http.HandlerFunc]
	// canary is a server that no client may reach by a redirect. visitors are the user agents of clients that did.
	canary *httptest.Server

	mu       sync.Mutex
	visitors []string
	bomb     []byte
}

// ServeHTTP attacks only the clients of this project. Liqo's own controllers also send requests to a provider, and read
// answers of any size: an endless list would use up the memory of the machine.
func (i *impostor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.UserAgent(), "liqo-broker-vk") {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	(*i.answer.Load())(w, r)
}

// attacks returns the answers of an impostor, by name.
func (i *impostor) attacks(t *testing.T) map[string]http.HandlerFunc {
	t.Helper()
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
		"a million objects": million,
		"wrong types": answering(http.StatusOK,
			`{"kind":["List"],"apiVersion":7,"metadata":"x","items":{"a":1},"status":[]}`),
		"control characters":                     answering(http.StatusInternalServerError, hostileStatus(t, 500)),
		"control characters in what is no error": answering(http.StatusOK, hostileStatus(t, 1)),
	}
}

// answering answers every request with a JSON text.
func answering(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// ready answers the broker's probes like an API server that is ready, and its other requests with an attack. It returns
// an error to virtual kubelets, which would otherwise treat their pods as gone.
func ready(attack http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasSuffix(r.UserAgent(), "/broker"):
			http.Error(w, "not now", http.StatusServiceUnavailable)
		case r.URL.Path == "/readyz":
			_, _ = io.WriteString(w, "ok")
		default:
			attack(w, r)
		}
	}
}

// hostileStatus returns a Status with the hostile text in all its texts, and repeated in the message.
func hostileStatus(t *testing.T, times int) string {
	t.Helper()
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: http.StatusInternalServerError, Reason: metav1.StatusReason(hostileText), Message: strings.Repeat(hostileText, times),
		Details: &metav1.StatusDetails{
			Name: hostileText, Kind: hostileText, Causes: []metav1.StatusCause{{Message: hostileText, Field: hostileText}},
		},
	})
	require.NoError(t, err)
	return string(text)
}

// million answers with a list of a million objects.
func million(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{}`)
	for n := range 1_000_000 {
		if _, err := fmt.Fprintf(w, `,{"metadata":{"name":"x-%d"}}`, n); err != nil || r.Context().Err() != nil {
			return
		}
	}
	_, _ = io.WriteString(w, "]}")
}

// slack is how much longer a pod may take than twice its time without an attack: each attack is measured once.
const slack = 3 * time.Second

// bound binds a pod to the broker's Node at its creation.
func bound(p *corev1.Pod) { p.Spec.NodeName = brokerNode }

// hostile is a provider that attacks, and the measurements during an attack.
type hostile struct {
	*catalogued
	namespace string
	provider  *sandbox.Cluster
	*impostorServer
	// token is the token of an administrator of the broker's cluster.
	token string
	// idle is how long pods of other providers take to run without an attack, before the memory of the broker at that
	// time.
	idle   time.Duration
	before int64
	// most is the largest memory of the broker so far.
	most int64
}

// hostileProvider replaces a provider's API server by an impostor that has the provider's certificate. Pods of other
// providers start as before, the broker's memory stays within bounds, and no user is shown a text that controls a
// terminal or a browser.
func (c *catalogued) hostileProvider(t *testing.T) {
	const mostMore = 100 << 20
	h := &hostile{catalogued: c, namespace: c.namespace(t), provider: c.Cluster("provider2")}
	var err error
	h.token, err = c.broker.Account(t.Context(), "default", "who-sees-all", "cluster-admin")
	require.NoError(t, err)
	h.idle, h.before = h.honest(t, "idle"), c.brokerMemory()
	h.most = h.before
	c.lies(t, h.provider, h.namespace)
	c.create(t, h.namespace, "kept", 6, only(h.provider.Name)) // Enough pods for the broker to list them all instead of one by one.
	for i := range 6 {
		eventually(t, patient, func(ctx context.Context) error {
			return c.runsAt(ctx, h.namespace, fmt.Sprint("kept-", i), h.provider.Name)
		})
	}
	require.NoError(t, c.Kill("provider2/kube-apiserver"))
	h.impostorServer = c.impersonate(t, h.provider)
	t.Cleanup(func() { require.NoError(t, c.Restart(context.Background(), "provider2")) })
	t.Cleanup(h.close)

	h.lists(t)
	for name, attack := range h.attacks(t) {
		probes := h.answerBy(attack, "/readyz")
		h.during(t, name, func() {
			eventually(t, 30*time.Second, func(ctx context.Context) error {
				if n := probes.Load(); n < 3 { // Probes follow each other, so two have ended.
					return fmt.Errorf("%s: %d probes", name, n)
				}
				return c.reachable(ctx, "provider2", metav1.ConditionFalse)
			})
		})
		h.showsPlainText(t, name)
	}
	assert.Less(t, h.most-h.before, int64(mostMore), "memory of the broker")
	h.logsPlainText(t)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, visitor := range h.visitors {
		assert.NotContains(t, visitor, "liqo-broker-vk", "it followed a redirect")
	}
}

// honest returns the median time until pods run that other providers fit.
func (h *hostile) honest(t *testing.T, name string) time.Duration {
	t.Helper()
	others := annotated(brokeringv1alpha1.FilterAnnotation, "provider.id != 'provider2'")
	return timeToRun(t, name, func(name string) { h.create(t, h.namespace, name, 1, both(bound, others)) },
		func(ctx context.Context, name string) error { return h.runsAt(ctx, h.namespace, name+"-0", "") })
}

// answerBy makes the impostor answer with an attack, and counts the requests whose path has the suffix.
func (h *hostile) answerBy(attack http.HandlerFunc, suffix string) *atomic.Int64 {
	var asked atomic.Int64
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, suffix) {
			asked.Add(1)
		}
		attack(w, r)
	})
	h.answer.Store(&counted)
	return &asked
}

// during requires that pods of other providers run as before while an attack is under way.
func (h *hostile) during(t *testing.T, attack string, underWay func()) {
	t.Helper()
	var took time.Duration
	memory := h.mostMemoryDuring(func() {
		underWay()
		took = h.honest(t, "during-"+strings.ReplaceAll(attack, " ", "-"))
	})
	h.most = max(h.most, memory)
	t.Logf("%s: a pod of another provider runs after %s (%s before), the broker has %d MiB (%d)", attack, took, h.idle,
		memory>>20, h.before>>20)
	assert.Less(t, took, 2*h.idle+slack, attack)
}

// lists makes the impostor answer probes like an API server that is ready, so its pods stay. Each list has a million
// objects: the list for the usage of its pods, and the lists of the pods that leave it during a drain. Such lists do
// not make a provider unreachable.
func (h *hostile) lists(t *testing.T) {
	probes := h.answerBy(ready(million), "/readyz")
	eventually(t, 30*time.Second, func(ctx context.Context) error {
		if n := probes.Load(); n < 5 {
			return fmt.Errorf("%d probes", n)
		}
		return h.reachable(ctx, "provider2", metav1.ConditionTrue)
	})
	for i := range 6 {
		require.Equal(t, "provider2", podOf(t, h.broker, h.namespace, fmt.Sprint("kept-", i)).Labels[brokeringv1alpha1.ProviderLabel])
	}
	usage := h.answerBy(ready(million), "/pods")
	h.during(t, "a million objects of usage", func() {
		h.summary(t)
		require.NotZero(t, usage.Load(), "the provider was asked")
	})

	asked := h.answerBy(ready(answering(http.StatusInternalServerError, hostileStatus(t, 1))), "/log")
	err := h.broker.Kube.CoreV1().Pods(h.namespace).GetLogs("kept-0", &corev1.PodLogOptions{}).Do(t.Context()).Error()
	require.ErrorContains(t, err, "<script>")
	require.Empty(t, hidden(err.Error()), "%.300q", err)
	require.NotZero(t, asked.Load(), "the provider was asked")

	h.restore(t, "provider2")
	left := h.answerBy(ready(million), "/shadowpods")
	h.during(t, "a million objects behind good probes", func() {
		h.decide(t, "provider2", func(s *brokeringv1alpha1.ProviderClusterSpec) { s.Drain = true })
		eventually(t, 30*time.Second, func(ctx context.Context) error {
			if n := left.Load(); n < 3 {
				return fmt.Errorf("%d lists", n)
			}
			return h.reachable(ctx, "provider2", metav1.ConditionTrue)
		})
	})
	for i := range 6 { // The content of such lists proves nothing, so no pod moves.
		kept := podOf(t, h.broker, h.namespace, fmt.Sprint("kept-", i))
		require.Equal(t, "provider2",
			cmp.Or(kept.Labels[brokeringv1alpha1.ProviderLabel], kept.Annotations[brokeringv1alpha1.MovingFromProviderAnnotation]))
	}
}

// summary requests the usage of all pods, as metrics-server does.
func (h *hostile) summary(t *testing.T) {
	t.Helper()
	f := &federation{Sandbox: h.Sandbox, local: h.broker, node: brokerNode}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.kubeletURL(t)+"/stats/summary", http.NoBody)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+h.token)
	asking := &http.Client{Transport: insecure(), Timeout: 30 * time.Second}
	response, err := asking.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", body)
}

func (h *hostile) reachableMessage(t *testing.T) string {
	t.Helper()
	var pc brokeringv1alpha1.ProviderCluster
	require.NoError(t, h.broker.Client.Get(t.Context(), client.ObjectKey{Name: "provider2"}, &pc))
	return meta.FindStatusCondition(pc.Status.Conditions, brokeringv1alpha1.ProviderReachable).Message
}

// mostMemoryDuring returns the largest brokerMemory while do runs.
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

// lies returns statuses of pods that an API server accepts from a provider, but that no kubelet writes.
func lies() map[string]func(s *corev1.PodStatus) {
	shown := func(status *corev1.PodStatus, text string) {
		status.Message, status.Reason = text, text
		for i := range status.Conditions {
			status.Conditions[i].Message, status.Conditions[i].Reason = text, text
		}
	}
	of := func(status *corev1.PodStatus, text string) {
		for i := range status.ContainerStatuses {
			c := &status.ContainerStatuses[i]
			c.Image, c.ImageID, c.ContainerID = text, text, text
			c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: text, Message: text}}
			c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: text, Message: text, ContainerID: text}
		}
	}
	return map[string]func(s *corev1.PodStatus){
		"a phase that there is not":   func(s *corev1.PodStatus) { s.Phase = "Nonsense\u001b[2J" },
		"a phase of half a megabyte":  func(s *corev1.PodStatus) { s.Phase = corev1.PodPhase(strings.Repeat("x", 1<<19)) },
		"characters of control":       func(s *corev1.PodStatus) { shown(s, hostileText); of(s, hostileText) },
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

// lies makes a provider report wrong statuses of one of its pods while pods of others start, and then the true status
// again.
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
		requirePlain(t, name, pod.Status)
	}
	b.hostileEvent(t, provider, &truth, ns)
	report(func(*corev1.PodStatus) {})
	eventually(t, patient, func(ctx context.Context) error { return b.runsAt(ctx, ns, "lied-about-0", provider.Name) })
}

// hostileEvent makes a provider report an event of a pod with hostile texts. The event is reflected with sanitised
// texts.
func (b *brokered) hostileEvent(t *testing.T, provider *sandbox.Cluster, pod *corev1.Pod, ns string) {
	t.Helper()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "hostile"},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, FieldPath: hostileText,
		},
		Reason: hostileText, Message: hostileText, Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: hostileText, Host: hostileText}, ReportingController: hostileText,
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	}
	require.NoError(t, provider.Client.Create(t.Context(), event))
	var reflected corev1.Event
	eventually(t, patient, func(ctx context.Context) error {
		return b.broker.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: event.Name}, &reflected)
	})
	assert.Contains(t, reflected.Message, "<script>")
	reflected.ManagedFields = nil
	requirePlain(t, "an event", reflected)
}

// brokerMemory returns the memory of the replica of the broker that uses most.
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

// impersonate listens at the address of an API server that was killed.
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
