package containers

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// runtimeConfig is containerd's configuration, with its directories, the image of pods' sandboxes, and the directories of
// CNI and of registries.
// restrict_oom_score_adj is needed where root lacks CAP_SYS_RESOURCE: runc may not lower an OOM score then.
const runtimeConfig = `version = 2
root = %[1]q
state = "/run/containerd"
disabled_plugins = [
	"io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
	"io.containerd.snapshotter.v1.devmapper", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[grpc]
address = %[2]q
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %[3]q
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = %[4]q
conf_dir = %[5]q
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = %[6]q
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
`

// hostsConfig is containerd's configuration of a registry, with its URL.
const hostsConfig = `server = %[1]q
[host.%[1]q]
capabilities = ["pull", "resolve"]
`

// writeFiles writes the configuration of containerd, of CNI and of the kubelet.
func (m *Machine) writeFiles() error {
	dirs := []string{"cni", "kubelet"}
	for _, name := range m.cfg.RegistryNames {
		dirs = append(dirs, filepath.Join("registries", name))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(m.file(dir), 0o700); err != nil {
			return err
		}
	}
	serving, err := m.cfg.Cluster.NewServingCert("system:node:"+m.cfg.Name, m.cfg.Name, m.cfg.Network.Address.String())
	if err != nil {
		return err
	}
	network, err := networkConfig(m.cfg.PodCIDR)
	if err != nil {
		return err
	}
	kubelet, err := yaml.Marshal(m.kubeletConfig())
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"tls.crt": serving.Cert, "tls.key": serving.Key, "ca.crt": m.cfg.Cluster.CA(), "kubelet.yaml": kubelet,
		"cni/10-ptp.conflist": network,
		"resolv.conf":         []byte("nameserver " + m.cfg.Network.Address.String() + "\n"),
		"containerd.toml": fmt.Appendf(nil, runtimeConfig, m.file("containerd"), socket, PauseImage, plugins, m.file("cni"),
			m.file("registries")),
	}
	for _, name := range m.cfg.RegistryNames {
		files[filepath.Join("registries", name, "hosts.toml")] = fmt.Appendf(nil, hostsConfig, "http://"+m.cfg.Registry)
	}
	for name, data := range files {
		if err := os.WriteFile(m.file(name), data, 0o600); err != nil {
			return err
		}
	}
	kubeconfig, err := m.cfg.Cluster.NewKubeconfig("system:node:"+m.cfg.Name, "system:nodes")
	if err != nil {
		return err
	}
	return clientcmd.WriteToFile(kubeconfig, m.file("kubeconfig"))
}

// networkConfig joins each pod to the node by a veth pair. The node masquerades what leaves it (package packets).
func networkConfig(pods netip.Prefix) ([]byte, error) {
	return json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": "pods",
		"plugins": []any{map[string]any{
			"type": "ptp", "mtu": 1420,
			"ipam": map[string]any{
				"type": "host-local", "dataDir": "/run/cni",
				"ranges": [][]any{{map[string]any{"subnet": pods.String()}}},
				"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
			},
		}},
	})
}

func (m *Machine) kubeletConfig() *kubeletconfigv1beta1.KubeletConfiguration {
	cfg := &kubeletconfigv1beta1.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{
			APIVersion: kubeletconfigv1beta1.SchemeGroupVersion.String(), Kind: "KubeletConfiguration",
		},
		Address:                  m.cfg.Network.Address.String(),
		HealthzBindAddress:       "127.0.0.1",
		ContainerRuntimeEndpoint: "unix://" + socket,
		CgroupDriver:             "cgroupfs", CgroupRoot: "/" + m.cfg.Cgroup,
		FailCgroupV1: ptr.To(false),
		FailSwapOn:   ptr.To(false),
		TLSCertFile:  m.file("tls.crt"), TLSPrivateKeyFile: m.file("tls.key"),
		ResolverConfig: ptr.To(m.file("resolv.conf")),
		ClusterDomain:  "cluster.local", ClusterDNS: []string{m.cfg.DNS.String()},
		PodLogsDir: m.file("pod-logs"),
		// The machine's disk may be nearly full, and is shared by all nodes: an eviction is a test's own.
		EvictionHard:                map[string]string{"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
		ImageGCHighThresholdPercent: ptr.To(int32(100)),
		MakeIPTablesUtilChains:      ptr.To(false),
		OOMScoreAdj:                 ptr.To(int32(0)), // Root may lack CAP_SYS_RESOURCE.
		ShutdownGracePeriod:         metav1.Duration{},
		SyncFrequency:               metav1.Duration{Duration: 10 * time.Second}, // Mounted ConfigMaps follow sooner than in a minute.
	}
	cfg.Authentication.X509.ClientCAFile = m.file("ca.crt")
	cfg.Authentication.Anonymous.Enabled = ptr.To(false)
	cfg.Authentication.Webhook.Enabled = ptr.To(true)
	cfg.Authorization.Mode = kubeletconfigv1beta1.KubeletAuthorizationModeWebhook
	for _, taint := range m.cfg.Taints {
		key, rest, _ := strings.Cut(taint, "=")
		value, effect, _ := strings.Cut(rest, ":")
		cfg.RegisterWithTaints = append(cfg.RegisterWithTaints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return cfg
}
