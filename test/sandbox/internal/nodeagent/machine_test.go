package nodeagent

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }

// Variables of the container replace the variables of its sources, and later sources override earlier ones.
func TestVariablesOfSecretsAndConfigMaps(t *testing.T) {
	a := New(Config{Client: fake.NewClientset(
		&corev1.Secret{ObjectMeta: meta("secret"), Data: map[string][]byte{"A": []byte("secret"), "data-1": []byte("value-1")}},
		&corev1.ConfigMap{ObjectMeta: meta("config"), Data: map[string]string{"A": "config"}},
	)})
	w := newPodWorker(a, &corev1.Pod{ObjectMeta: meta("pod")})
	env, err := w.environment(t.Context(), corev1.Container{
		EnvFrom: []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}}},
			{Prefix: "p-", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Optional: ptr.To(true)}},
		},
		Env: []corev1.EnvVar{{Name: "B", Value: "$(A)"}},
	})
	require.NoError(t, err)
	assert.Subset(t, env, []string{"A=secret", "data-1=value-1", "p-A=config", "B=secret"})

	_, err = w.environment(t.Context(), corev1.Container{EnvFrom: []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}},
	}})
	assert.ErrorContains(t, err, "none")
}

func TestFieldsOfAPod(t *testing.T) {
	w := newPodWorker(New(Config{NodeName: "node"}), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Labels: map[string]string{"a/index": "1"}},
		Spec:       corev1.PodSpec{NodeName: "node"},
	})
	for path, want := range map[string]string{
		"metadata.name": "pod", "metadata.labels['a/index']": "1", "spec.nodeName": "node", "status.podIP": "127.0.0.1",
	} {
		got, err := w.field(path)
		require.NoError(t, err)
		assert.Equal(t, want, got, "%s", path)
	}
	_, err := w.field("spec.priority")
	assert.ErrorContains(t, err, "spec.priority")
}

func TestProgramsOfThisMachine(t *testing.T) {
	for command, want := range map[string]string{"sh": "bash", "/bin/sh": "bash", "sleep": "sleep"} {
		got, err := Image{Machine: true}.program(command)
		require.NoError(t, err)
		assert.Equal(t, want, filepath.Base(got), "%s", command)
	}
	got, err := Image{Binary: "/it"}.program("other")
	require.NoError(t, err)
	assert.Equal(t, "/it", got)
}

func TestLogsOfAContainer(t *testing.T) {
	a, one, _ := replicas()
	a.cfg.LogDir = t.TempDir()
	one.pod.Namespace = "ns"
	require.NoError(t, os.WriteFile(filepath.Join(a.cfg.LogDir, one.pod.Name+"-main.log"), []byte("hello\n"), 0o600))
	for path, want := range map[string]int{
		"/containerLogs/ns/" + one.pod.Name + "/main":  http.StatusOK,
		"/containerLogs/ns/" + one.pod.Name + "/other": http.StatusNotFound,
		"/containerLogs/ns/other/main":                 http.StatusNotFound,
	} {
		answer := httptest.NewRecorder()
		a.routes().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		assert.Equal(t, want, answer.Code, "%s", path)
		if want == http.StatusOK {
			assert.Equal(t, "hello\n", answer.Body.String())
		}
	}
}

func TestAnExitCodeIsReported(t *testing.T) {
	group := proc.NewGroup(t.TempDir())
	t.Cleanup(group.Close)
	p, err := group.Start(proc.Spec{Name: "it", Path: "/bin/sh", Args: []string{"-c", "exit 42"}, Log: filepath.Join(t.TempDir(), "log")})
	require.NoError(t, err)
	assert.EqualValues(t, 42, terminated(p, new(container)).ExitCode)
}

func TestContainersRunAgainByThePolicyOfTheirPod(t *testing.T) {
	for _, c := range []struct {
		policy corev1.RestartPolicy
		code   int32
		want   bool
	}{
		{corev1.RestartPolicyAlways, 0, true},
		{corev1.RestartPolicyAlways, 1, true},
		{corev1.RestartPolicyOnFailure, 0, false},
		{corev1.RestartPolicyOnFailure, 1, true},
		{corev1.RestartPolicyNever, 0, false},
		{corev1.RestartPolicyNever, 1, false},
	} {
		assert.Equal(t, c.want, runsAgain(c.policy, c.code), "%s, exit code %d", c.policy, c.code)
	}
}

// A kubelet runs a container again without the API server, but not for the first time.
func TestAContainerThatRanBeforeNeedsNoAPIServer(t *testing.T) {
	kube, away := fake.NewClientset(&corev1.Secret{ObjectMeta: meta("secret"), Data: map[string][]byte{"A": []byte("secret")}}), false
	kube.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return away, nil, errors.New("no API server")
	})
	fromSecret := []corev1.EnvFromSource{
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}}},
	}
	pod := &corev1.Pod{ObjectMeta: meta("pod"), Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", EnvFrom: fromSecret}},
	}}
	w := newPodWorker(New(Config{Client: kube, Dir: t.TempDir()}), pod)
	away = true
	_, _, err := w.prepare(t.Context(), w.containers[0], Image{})
	require.ErrorContains(t, err, "no API server")
	away = false
	env, binds, err := w.prepare(t.Context(), w.containers[0], Image{})
	require.NoError(t, err)
	require.Contains(t, env, "A=secret")
	away = true
	again, bindsAgain, err := w.prepare(t.Context(), w.containers[0], Image{})
	require.NoError(t, err)
	assert.Equal(t, env, again)
	assert.Equal(t, binds, bindsAgain)
}
