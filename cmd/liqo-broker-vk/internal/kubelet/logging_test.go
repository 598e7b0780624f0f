package kubelet

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	vklog "github.com/virtual-kubelet/virtual-kubelet/log"
	"k8s.io/klog/v2"

	"github.com/capacitorset/liqo-broker-vk/pkg/logging"
)

func TestLibrariesLogThroughOneLogger(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"by default, what is not a detail": {nil, []string{"from Liqo", "from virtual-kubelet"}},
		"debug shows the steps":            {[]string{"--log-level=debug"}, []string{"from Liqo", "step", "from virtual-kubelet"}},
		"--klog.v decides on details":      {[]string{"--klog.v=4"}, []string{"from Liqo", "step", "from virtual-kubelet"}},
		"--klog.v prevails over debug": {
			[]string{"--log-level=debug", "--klog.v=5"},
			[]string{"from Liqo", "step", "detail", "from virtual-kubelet"},
		},
		"warn leaves out what is only info":   {[]string{"--log-level=warn", "--klog.v=5"}, []string{"from virtual-kubelet"}},
		"error leaves out what is no failure": {[]string{"--log-level=error"}, []string{"from virtual-kubelet"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			o, flags := ourFlags()
			require.NoError(t, flags.Parse(tc.args))
			_, err := logging.SetUp(&out, o.LogLevel, "json", flags)
			require.NoError(t, err)
			t.Cleanup(func() {
				klog.ClearLogger()
				require.NoError(t, flags.Set("klog.v", "0"))
			})

			klog.InfoS("from Liqo", "pod", klog.KRef("ns", "pod"))
			klog.V(4).Infof("%s", "step")
			klog.V(5).Info("detail")
			vklog.L.WithField("uri", "/pods").Error("from virtual-kubelet")

			var messages []string
			for line := range strings.Lines(out.String()) {
				var entry map[string]any
				require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
				require.Contains(t, []any{"debug", "info", "error"}, entry["level"])
				message, _, _ := strings.Cut(entry["msg"].(string), " [")
				messages = append(messages, strings.TrimSpace(message))
			}
			require.Equal(t, tc.want, messages)
		})
	}
}
