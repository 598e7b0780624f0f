package catalog

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/server"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
)

// planted must not be in any answer.
const planted = "planted-secret"

// marked adds the fields that Kubernetes and kubectl write on every object.
func marked[T client.Object](o T) T {
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: planted, Operation: "Apply", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{}`)},
	}})
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[corev1.LastAppliedConfigAnnotation] = planted
	o.SetAnnotations(annotations)
	return o
}

// federationOf has providers, and pods of consumers c1, c2 and so on, in a namespace for each.
func federationOf(providers, consumers, pods int) []client.Object {
	var all []client.Object
	amounts := corev1.ResourceList{
		"cpu": resource.MustParse("64"), "memory": resource.MustParse("256Gi"), "pods": resource.MustParse("110"),
	}
	provider := func(i int) string { return fmt.Sprintf("p%d", i%providers) }
	for i := range providers {
		id := provider(i)
		desired, mapping := map[string]string{}, map[string]offloadingv1beta1.RemoteNamespaceStatus{}
		for n := range consumers {
			desired[fmt.Sprintf("web-c%d", n)] = ""
			mapping[fmt.Sprintf("web-c%d", n)] = offloadingv1beta1.RemoteNamespaceStatus{Phase: offloadingv1beta1.MappingAccepted}
		}
		latency := int64(i % 50)
		resources := v1alpha1.Resources{Granted: amounts, Assigned: amounts, Free: amounts}
		all = append(all,
			marked(&v1alpha1.ProviderCluster{
				ObjectMeta: metav1.ObjectMeta{Name: id},
				Spec: v1alpha1.ProviderClusterSpec{Attributes: map[string]string{
					"price": "0.042", "region": fmt.Sprint("region-", i%7),
				}},
				Status: v1alpha1.ProviderClusterStatus{
					Resources: resources, Pods: 10,
					VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: id + "-1", Ready: true, Resources: resources}},
					KPIs: v1alpha1.KPIs{
						LatencyMilliseconds: &latency,
						Uptime:              v1alpha1.Uptime{LastHour: "0.9", LastDay: "0.99", LastWeek: "1", LastMonth: "1"},
					},
					Conditions: []metav1.Condition{
						{
							Type: v1alpha1.ProviderReady, Status: metav1.ConditionTrue, Reason: "Ready",
							LastTransitionTime: metav1.NewTime(moment),
						},
						{
							Type: v1alpha1.ProviderReachable, Status: metav1.ConditionTrue, Reason: "Reachable",
							LastTransitionTime: metav1.NewTime(moment),
						},
					},
				},
			}),
			marked(&liqov1beta1.ForeignCluster{
				ObjectMeta: metav1.ObjectMeta{Name: id},
				Spec:       liqov1beta1.ForeignClusterSpec{ClusterID: liqov1beta1.ClusterID(id)},
			}),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "liqo-tenant-" + id, Labels: map[string]string{"liqo.io/remote-cluster-id": id, "liqo.io/tenant-namespace": "true"},
			}},
			marked(&offloadingv1beta1.NamespaceMap{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "liqo-tenant-" + id, Name: id, Labels: map[string]string{"liqo.io/remote-cluster-id": id},
				},
				Spec:   offloadingv1beta1.NamespaceMapSpec{DesiredMapping: desired},
				Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: mapping},
			}),
			marked(&offloadingv1beta1.VirtualNode{
				ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + id, Name: id + "-1"},
				Spec: offloadingv1beta1.VirtualNodeSpec{
					ClusterID: liqov1beta1.ClusterID(id), Labels: map[string]string{"zone": id + "-a"},
				},
			}))
	}
	for n := range consumers {
		id := fmt.Sprint("c", n)
		all = append(all,
			marked(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name:        "web-" + id,
				Labels:      map[string]string{"liqo.io/remote-cluster-id": id},
				Annotations: map[string]string{"liqo.io/managed-by-namespace-map": "liqo-tenant/" + id},
			}}),
			marked(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "liqo-tenant-" + id, Labels: map[string]string{"liqo.io/remote-cluster-id": id, "liqo.io/tenant-namespace": "true"},
			}}),
			marked(&v1alpha1.PlacementPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: "of-" + id},
				Spec:       v1alpha1.PlacementPolicySpec{Consumers: []string{id, "c99"}},
			}))
	}
	for i := range pods {
		id := fmt.Sprint("c", i%consumers)
		all = append(all, marked(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "web-" + id, Name: fmt.Sprintf("pod-%d-of-%s", i, id), UID: "",
				Labels: map[string]string{
					v1alpha1.ProviderLabel: provider(i), v1alpha1.VirtualNodeLabel: provider(i) + "-1", "app": "web",
				},
				Annotations: map[string]string{v1alpha1.DecisionAnnotation: provider(i) + " 84: price 29, spread 29, free 26"},
			},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
				Name: "c", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: planted}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}},
			}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}))
		all[len(all)-1].SetUID("uid-" + all[len(all)-1].GetUID())
	}
	return all
}

// running starts Run with a catalog until the test ends.
func running(t testing.TB, api *apiServer, change ...func(*Config)) (url, operators string) {
	t.Helper()
	address := freeAddress(t)
	cfg := Config{
		Log: (&lines{}).logger(), Home: api.config(), QPS: 1000, Burst: 1000, Version: "v0", Node: node, Address: address,
		TLS:           TLSConfig{Off: true},
		Limits:        caller.Limits{PerSecond: 1e6, Burst: 1e6, Streams: 100, TotalStreams: 100, Connections: 1000},
		HealthAddress: freeAddress(t), MetricsAddress: freeAddress(t),
	}
	for _, f := range change {
		f(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		require.NoError(t, <-done)
	})
	require.Eventually(t, func() bool {
		select {
		case err := <-done:
			done <- err
			t.Fatal(err)
		default:
		}
		response, err := http.Get("http://" + cfg.HealthAddress + "/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, 30*time.Second, 10*time.Millisecond)
	return "http://" + address, "http://" + cfg.MetricsAddress
}

func freeAddress(t testing.TB) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	return ln.Addr().String()
}

func TestTheCatalogRuns(t *testing.T) {
	api := newAPIServer(t, federationOf(3, 3, 9)...)
	c := &requester{t: t}
	url, operators := running(t, api)
	c.url = url

	require.Equal(t, []string{"p0", "p1", "p2"}, ids(t, c.do(call{path: "/api/v1/providers"}).body))
	require.Equal(t, []string{"pod-1-of-c1", "pod-4-of-c1", "pod-7-of-c1"},
		ids(t, c.do(call{path: "/api/v1/placements", token: "people-c1"}).body))
	require.Equal(t, []string{"of-c1"}, ids(t, c.do(call{path: "/api/v1/policies", token: "people-c1"}).body))
	require.Equal(t, http.StatusOK, c.do(call{path: "/"}).status, "the dashboard")
	require.Empty(t, c.do(call{path: "/"}).header.Get("Strict-Transport-Security"), "which there is no TLS for")

	api.mu.Lock()
	selected := maps.Clone(api.selected)
	api.mu.Unlock()
	require.Equal(t, "spec.nodeName="+node, selected["/api/v1/pods"], "no other pods are known")
	require.Len(t, selected, len(collections)-4, "and no Secrets, no ConfigMaps, without TLS, and nothing of Liqo v0.x: %v", selected)

	var explanation explain.Explanation
	got := c.do(call{path: "/api/v1/explain?namespace=web-c1&pod=pod-1-of-c1", token: "people-c1"})
	require.NoError(t, json.Unmarshal([]byte(got.body), &explanation), got.body)
	require.Equal(t, "p1", explanation.AssignedTo)
	require.NotEmpty(t, explanation.Chosen, got.body)

	// A write is seen in the stream, and then in the list.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := c.open(ctx, call{path: "/api/v1/events", token: "people-c1"})
	defer stream.Body.Close()
	events := bufio.NewScanner(stream.Body)
	read(t, events, 3)
	require.Equal(t, http.StatusOK, c.do(call{path: "/api/toggle?id=p0&enable=false", token: "operator"}).status)
	require.Equal(t, []string{"PATCH /apis/brokering.liqo.io/v1alpha1/providerclusters/p0"}, api.wrote())
	changed := read(t, events, 2)
	require.Equal(t, "event: provider", changed[0])
	require.Contains(t, changed[1], `"id":"p0","enabled":false`)
	require.Contains(t, c.do(call{path: "/api/v1/providers/p0"}).body, `"enabled":false`)
	cancel()

	c.url = operators
	require.Contains(t, c.do(call{path: "/metrics"}).body,
		`liqo_catalog_request_duration_seconds_count{code="200",method="GET",route="/api/v1/providers"} 1`)
}

func TestTheCatalogShowsWhatItReadWhenItsAPIServerIsLost(t *testing.T) {
	api, health := newAPIServer(t, federationOf(3, 3, 9)...), ""
	url, _ := running(t, api, func(cfg *Config) { health = cfg.HealthAddress })
	api.close()
	c := &requester{t: t, url: url}
	require.Equal(t, []string{"p0", "p1", "p2"}, ids(t, c.do(call{path: "/api/v1/providers"}).body))
	require.Equal(t, http.StatusServiceUnavailable, c.do(call{path: "/api/v1/me", token: "operator"}).status, "a review")
	c.url = "http://" + health
	require.Equal(t, http.StatusOK, c.do(call{path: "/readyz"}).status)
}

// No answer of the whole catalog has metadata of Kubernetes and kubectl, the environment of pods, or data of other
// consumers.
func TestNothingLeaksFromTheCluster(t *testing.T) {
	api := newAPIServer(t, federationOf(3, 3, 9)...)
	c := &requester{t: t}
	c.url, _ = running(t, api)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	markers := 0
	for token, others := range map[string][]string{
		"operator": nil, "people-c1": {"of-c2", "of-c0", "c99", `"c2"`}, "": {"of-c", `"c1"`, "c99"}, "powerless": {"of-c", `"c1"`, "c99"},
	} {
		stream := c.open(ctx, call{path: "/api/v1/events", token: token})
		defer stream.Body.Close()
		events := bufio.NewScanner(stream.Body)
		read(t, events, 3)
		var said []string
		for _, path := range []string{
			"/api/clusters", "/api/v1/me", "/api/v1/providers", "/api/v1/providers/p0", "/api/v1/providers/p0/history",
			"/api/v1/placements",
			"/api/v1/placements?namespace=web-c2", "/api/v1/placements?provider=p0", "/api/v1/placements?consumer=c2",
			"/api/v1/placements?q=pod",
			"/api/v1/flows", "/api/v1/policies", "/api/v1/explain?namespace=web-c1&pod=pod-1-of-c1",
			"/api/v1/explain?namespace=web-c2&pod=pod-2-of-c2",
		} {
			said = append(said, c.do(call{path: path, token: token}).body)
		}
		said = append(said, c.do(call{method: "POST", path: "/api/v1/explain", body: `{"namespace":"web-c2"}`, token: token}).body)
		// Pods of all consumers change, then a provider, which every caller sees.
		for _, o := range federationOf(3, 3, 9) {
			if pod, ok := o.(*corev1.Pod); ok {
				pod.Status.Phase = corev1.PodPending
				api.put(pod)
				pod.Status.Phase = corev1.PodRunning
				api.put(pod)
			}
		}
		markers++
		last := fmt.Sprint("marker-", markers)
		api.put(marked(&v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: last}}))
		for line := ""; !strings.Contains(line, last); {
			line = read(t, events, 1)[0]
			said = append(said, line)
		}
		for _, secret := range append(others, planted, "managedFields", "last-applied", "PASSWORD") {
			for _, text := range said {
				if !strings.Contains(text, `"status":4`) { // A problem repeats the request.
					require.NotContains(t, text, secret, "to %q", token)
				}
			}
		}
	}
}

func TestOneHostDoesNotTakeAllConnections(t *testing.T) {
	url, operators := running(t, newAPIServer(t), func(cfg *Config) { cfg.Limits.Connections = 2 })
	address := strings.TrimPrefix(url, "http://")
	for range 2 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		defer conn.Close()
	}
	_, err := http.Get(url)
	require.Error(t, err)
	c := &requester{t: t, url: operators}
	require.Contains(t, c.do(call{path: "/metrics"}).body, `liqo_catalog_refusals_total{reason="connections"}`)
}

// Requests such as curl http://…/api/clusters, and no request that needs a credential or makes a change.
func TestWhatIsPublicIsAnsweredInPlainToo(t *testing.T) {
	authority, _, err := certutil.GenerateSelfSignedCertKey("ca", nil, nil)
	require.NoError(t, err)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, authority, 0o600))
	api := newAPIServer(t, federationOf(3, 3, 9)...)
	c := &requester{t: t}
	c.url, _ = running(t, api, func(cfg *Config) {
		cfg.TLS, cfg.Access.AnonymousToggle = TLSConfig{Public: true, ClientCAFile: ca}, true
	})
	secure := "https" + strings.TrimPrefix(c.url, "http")

	require.Equal(t, []string{"p0", "p1", "p2"}, ids(t, c.do(call{path: "/api/v1/providers"}).body))
	require.Equal(t, http.StatusOK, c.do(call{path: "/api/clusters"}).status)
	reviews := api.reviews.Load()
	for _, refused := range []call{
		{path: "/api/v1/providers", token: "operator"},
		{path: "/api/toggle?id=p0&enable=false"},
		{path: "/api/toggle?id=p0&enable=false", method: "HEAD"},
		{path: "/api/toggle?id=p0&enable=false", method: "POST"},
		{path: "/api/v1/explain", method: "POST", body: "{}"},
		{path: "/", method: "POST"},
	} {
		got := c.do(refused)
		require.Equal(t, http.StatusForbidden, got.status, refused)
		if refused.method != "HEAD" {
			require.Contains(t, got.body, "use "+secure+strings.ReplaceAll(refused.path, "&", `\u0026`), refused)
		}
	}
	require.Equal(t, reviews, api.reviews.Load(), "no credential was looked at")
	require.Empty(t, api.wrote())

	// The dashboard is where people sign in: never in plain.
	direct := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := direct.Get(c.url + "/index.html?x=1")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusTemporaryRedirect, response.StatusCode)
	require.Equal(t, secure+"/index.html?x=1", response.Header.Get("Location"))

	trusting := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer trusting.CloseIdleConnections()
	response, err = (&http.Client{Transport: trusting}).Get(secure + "/api/v1/providers")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
}

func TestWhatAnOperatorMightNotHaveMeantIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		access   server.Access
		plain    bool
		warnings []string
		not      []string
	}{
		"nothing of it": {not: []string{"--anonymous-toggle", "--plain-http"}},
		"an open door": {
			access: server.Access{AnonymousToggle: true}, warnings: []string{"--anonymous-toggle"},
			not: []string{"every page"},
		},
		"an open door without TLS": {
			access: server.Access{AnonymousToggle: true}, plain: true,
			warnings: []string{"--anonymous-toggle", "every page"},
		},
		"no TLS, and the door is not": {plain: true, warnings: []string{"--plain-http"}, not: []string{"--anonymous-toggle"}},
	} {
		t.Run(name, func(t *testing.T) {
			log := &lines{}
			c := &catalog{log: log.logger(), cfg: Config{Access: tc.access, TLS: TLSConfig{Off: tc.plain}}}
			c.logSettings("http", &net.TCPAddr{})
			for _, part := range tc.warnings {
				require.Contains(t, log.String(), part)
			}
			for _, part := range tc.not {
				require.NotContains(t, log.String(), part)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A Service of several replicas sent callers to a replica that had not read the Secret of the certificate yet: they got
// "tls: internal error".
func TestAReplicaIsReadyOnceItHasACertificate(t *testing.T) {
	api := newAPIServer(t, federationOf(1, 1, 1)...)
	signed, key, err := certutil.GenerateSelfSignedCertKey("catalog", nil, nil)
	require.NoError(t, err)
	stored, err := json.Marshal(&corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "y"},
		Data: map[string][]byte{corev1.TLSCertKey: signed, corev1.TLSPrivateKeyKey: key},
	})
	require.NoError(t, err)
	health, read := freeAddress(t), make(chan struct{})
	probe := func() (code int, body string) {
		response, err := http.Get("http://" + health + "/readyz")
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return 0, err.Error()
		}
		return response.StatusCode, string(text)
	}
	go func() { // The Secret is read after the replica has reported that it lacks only that.
		defer close(read)
		assert.Eventually(t, func() bool {
			code, body := probe()
			return code == http.StatusServiceUnavailable && strings.Contains(body, "the Secret x/y has not been read yet")
		}, 30*time.Second, 10*time.Millisecond)
	}()
	url, _ := running(t, api, func(cfg *Config) {
		cfg.HealthAddress = health
		cfg.TLS = TLSConfig{Secret: types.NamespacedName{Namespace: "x", Name: "y"}, Names: []string{"catalog"}}
		cfg.Home.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path != "/api/v1/namespaces/x/secrets/y" {
					return next.RoundTrip(r)
				}
				<-read
				return &http.Response{
					StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(bytes.NewReader(stored)), Request: r,
				}, nil
			})
		})
	})
	conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "http://"), &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

func TestTheCertificateInFilesIsFollowed(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	renew := func(name string) {
		certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(key, keyPEM, 0o600))
		require.NoError(t, os.WriteFile(cert, certPEM, 0o600))
	}
	renew("first")
	serving, err := fromFiles(&TLSConfig{CertFile: cert, KeyFile: key})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serving.run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-done)
	}()
	shown := func() []byte {
		got, err := serving.get(nil)
		require.NoError(t, err)
		return got.Certificate[0]
	}
	before := shown()
	require.Eventually(t, func() bool {
		renew("another") // Again, because the files may not be watched yet.
		return !bytes.Equal(before, shown())
	}, 30*time.Second, 100*time.Millisecond)

	_, err = fromFiles(&TLSConfig{CertFile: filepath.Join(dir, "none"), KeyFile: key})
	require.ErrorContains(t, err, "--tls-cert-file")
}
