package kubectl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/printers"
	"pgregory.net/rapid"
)

func TestNamesOfArguments(t *testing.T) {
	for argument, want := range map[string]string{
		"p1":                                   "p1",
		"providercluster/p1":                   "p1",
		"pcl/p1":                               "p1",
		"ProviderClusters/p1":                  "p1",
		"providercluster.brokering.liqo.io/p1": "p1",
		"providerclusters.v1alpha1.brokering.liqo.io/p1": "p1",
		"pod/p1":                    "",
		"providercluster/":          "",
		"/p1":                       "",
		"providercluster/p1/p2":     "",
		"providercluster.liqo.io/p": "",
	} {
		t.Run(argument, func(t *testing.T) {
			name, err := Providers().Name(argument)
			require.Equal(t, want, name)
			if want == "" {
				require.EqualError(t, err, `"`+argument+`" is not the name of a provider: use NAME or providercluster/NAME`)
			}
		})
	}
	names, err := Pods().Names([]string{"web-0", "pod/web-0", "pods/web-1", "deployment/web", "service/web"})
	require.Equal(t, []string{"web-0", "web-1"}, names)
	require.Len(t, Words(err), 2, "an error for each")
	_, err = Pods().Name("pod.brokering.liqo.io/web-0")
	require.Error(t, err)
}

// Every name that -o name prints is accepted.
func TestPrintedNamesAreAccepted(t *testing.T) {
	s, screen := at(t, noFaults(), provider("p1"), placed("a", "p1"))
	rapid.Check(t, func(r *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?(\.[a-z0-9]{1,5})?`).Draw(r, "name")
		pc, pod := provider(name), placed(name, "")
		require.NoError(r, s.identify(pc))
		require.NoError(r, s.identify(pod))
		require.NoError(r, (&printers.NamePrinter{}).PrintObj(pc, s.Out))
		require.NoError(r, (&printers.NamePrinter{}).PrintObj(pod, s.Out))
		lines := screen.lines()
		require.Len(r, lines, 2)
		for i, kind := range []Kind{Providers(), Pods()} {
			read, err := kind.Name(strings.TrimSpace(lines[i]))
			require.NoError(r, err)
			require.Equal(r, name, read)
		}
	})
}
