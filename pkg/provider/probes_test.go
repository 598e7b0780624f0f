package provider

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/capacitorset/liqo-broker-vk/pkg/provider/process"
)

func probeAt(port intstr.IntOrString, change ...func(*corev1.HTTPGetAction)) *corev1.Probe {
	get := &corev1.HTTPGetAction{Path: "/readyz", Port: port}
	for _, c := range change {
		c(get)
	}
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: get}}
}

func TestProbedPorts(t *testing.T) {
	at := intstr.FromInt
	named := []corev1.ContainerPort{{Name: "health", ContainerPort: 7001}}
	own := corev1.Container{Name: "virtual-kubelet", ReadinessProbe: probeAt(at(7002))}
	host := probeAt(at(7002), func(g *corev1.HTTPGetAction) { g.Host = "10.0.0.1" })
	mesh := probeAt(at(15020), func(g *corev1.HTTPGetAction) { g.Path = "/app-health/readyz" })
	tls := probeAt(at(7002), func(g *corev1.HTTPGetAction) { g.Scheme = corev1.URISchemeHTTPS })
	for name, tc := range map[string]struct {
		containers []corev1.Container
		want       []int
	}{
		"as Liqo v1.2.0 makes it": {[]corev1.Container{{Name: "virtual-kubelet"}}, nil},
		"as Liqo v1.3.0 makes it": {[]corev1.Container{own}, []int{7002}},
		"all three probes": {[]corev1.Container{{
			StartupProbe: probeAt(at(7003)), LivenessProbe: probeAt(at(7002)), ReadinessProbe: probeAt(at(7003)),
		}}, []int{7002, 7003}},
		"a port by its name":      {[]corev1.Container{{Ports: named, ReadinessProbe: probeAt(intstr.FromString("health"))}}, []int{7001}},
		"a name that no port has": {[]corev1.Container{{Ports: named, ReadinessProbe: probeAt(intstr.FromString("web"))}}, nil},
		"a number as text":        {[]corev1.Container{{ReadinessProbe: probeAt(intstr.FromString("7004"))}}, []int{7004}},
		"another host":            {[]corev1.Container{{ReadinessProbe: host}}, nil},
		"of a mesh":               {[]corev1.Container{{ReadinessProbe: mesh}}, nil},
		"over TLS":                {[]corev1.Container{{ReadinessProbe: tls}}, nil},
		"not by HTTP":             {[]corev1.Container{{ReadinessProbe: &corev1.Probe{}}}, nil},
		"a sidecar's":             {[]corev1.Container{{Name: "proxy", ReadinessProbe: probeAt(at(15021))}, own}, []int{7002}},
		"which one is unknown":    {[]corev1.Container{{Name: "proxy", ReadinessProbe: probeAt(at(15021))}, {Name: "main"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, probedPorts(&corev1.Pod{Spec: corev1.PodSpec{Containers: tc.containers}}))
		})
	}
}

// Of three ports one is the health address, and one is in use. The pod cannot be read at first.
func TestProbesAreServedWhereThePodNamesThem(t *testing.T) {
	listen := func() (net.Listener, int) {
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0")
		require.NoError(t, err)
		return ln, ln.Addr().(*net.TCPAddr).Port
	}
	inUse, used := listen()
	defer inUse.Close()
	ln, free := listen()
	require.NoError(t, ln.Close())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "vk"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			StartupProbe: probeAt(intstr.FromInt(used)), LivenessProbe: probeAt(intstr.FromInt(8081)),
			ReadinessProbe: probeAt(intstr.FromInt(free)),
		}}},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	health, ended := &process.Health{}, make(chan error, 1)
	cfg := &Config{
		Log: testr.New(t), PodName: "vk", VirtualNodeNamespace: "tenant", HealthAddress: ":8081",
	}
	local, reads := fake.NewClientset(pod), 0
	local.PrependReactor("get", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		reads++
		return reads < 3, nil, errors.New("refused")
	})
	cfg.StartupTimeout = time.Millisecond // It is exceeded twice.
	go func() { ended <- serveProbes(ctx, cfg, local, health.Handler()) }()

	ask := func() (int, string) {
		resp, err := http.Get("http://127.0.0.1:" + strconv.Itoa(free) + "/readyz")
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	require.Eventually(t, func() bool { code, _ := ask(); return code != 0 }, 10*time.Second, 10*time.Millisecond)
	code, text := ask()
	require.Equal(t, http.StatusServiceUnavailable, code, text)
	health.Set(process.Serving)
	code, text = ask()
	require.Equal(t, http.StatusOK, code, text)
	cancel()
	require.NoError(t, <-ended)
}

func TestAVirtualKubeletOutsideOfAPodServesNoOtherProbes(t *testing.T) {
	require.NoError(t, serveProbes(t.Context(), &Config{}, nil, nil))
}
