package scheduler

import (
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

func TestAssignments(t *testing.T) {
	core := resources.Amounts{corev1.ResourceCPU: 1000, corev1.ResourcePods: 1}
	s := stateOf(ready("r"), ready("q"))
	assigned := func(virtualNode string, milliCPU int64, pods int) {
		t.Helper()
		resources, count := s.Assigned(Place{virtualNode, virtualNode})
		require.Equal(t, pods, count)
		require.Equal(t, milliCPU, resources[corev1.ResourceCPU])
		require.Equal(t, int64(pods), resources[corev1.ResourcePods])
	}

	s.Assign(Assignment{UID: "a", Place: Place{"q", "q"}, App: "app", Requests: core})
	s.Assign(Assignment{UID: "a", Place: Place{"q", "q"}, App: "app", Requests: core})
	assigned("q", 1000, 1)
	s.Assign(Assignment{UID: "b", Place: Place{"q", "q"}, Requests: core})
	assigned("q", 2000, 2)
	s.Assign(Assignment{UID: "a", Place: Place{"r", "r"}, Requests: core})
	assigned("q", 1000, 1)
	assigned("r", 1000, 1)

	s.RemoveProvider("q")
	s.RemoveProvider("q")
	require.Len(t, s.Providers(), 1)
	assigned("q", 1000, 1)
	s.SetProvider(ready("q"))
	require.Equal(t, "q", s.Providers()[0].ID)
	assigned("q", 1000, 1)
	require.Equal(t, "insufficient cpu", decide(s, asking(func(p *Pod) {
		p.Requests[corev1.ResourceCPU] = 7500
	}), nil).Verdicts[0].Reason())

	s.Release(HolderOf("a"))
	s.Release(HolderOf("b"))
	s.Release(HolderOf("b"))
	s.Release(HolderOf("never seen"))
	assigned("q", 0, 0)
	assigned("nowhere", 0, 0)
}

func TestNothingIsKeptOfWhatIsGone(t *testing.T) {
	s := NewState()
	s.SetProvider(ready("q", granted(sliceOf("q1", 1, 1), sliceOf("q2", 1, 1))))
	s.Assign(Assignment{UID: "a", Place: Place{"q", "q1"}, App: "app"})
	s.Assign(Assignment{UID: "a", Place: Place{"q", "elsewhere"}, App: "app"})
	s.SetProvider(ready("q", granted(sliceOf("q2", 1, 1))))
	require.Len(t, s.loads, 2)
	s.Release(HolderOf("a"))
	s.RemoveProvider("q")
	require.Empty(t, s.loads)
	require.Empty(t, s.apps)
	require.Empty(t, s.assignments)
	require.Empty(t, s.providers)
}

// Consumers choose the names of the resources that their pods request.
func TestNamesOfWhatNobodyAsksAnythingOfAreNotKept(t *testing.T) {
	s := stateOf(ready("q"))
	known := len(s.table.Names())
	for _, name := range []corev1.ResourceName{"example.org/1", "example.org/2"} {
		s.Assign(Assignment{UID: "a", Place: Place{"q", "q"}, Requests: resources.Amounts{name: 0, corev1.ResourcePods: 1}})
	}
	require.Len(t, s.table.Names(), known)
	assigned, count := s.Assigned(Place{"q", "q"})
	require.Equal(t, resources.Amounts{corev1.ResourcePods: 1}, assigned)
	require.Equal(t, 1, count)
}

func TestAbsurdAmountsDoNotOverflow(t *testing.T) {
	absurd := resources.RoundUp(corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("9E"), corev1.ResourceMemory: resource.MustParse("7Ei"),
	})
	s := stateOf(ready("q"))
	require.Equal(t, "insufficient cpu", decide(s, asking(func(p *Pod) { p.Requests = absurd }), nil).Verdicts[0].Reason())
	for _, uid := range []string{"a", "b", "c"} {
		s.Assign(Assignment{UID: typesUID(uid), Place: Place{"q", "q"}, Requests: absurd})
	}
	require.Equal(t, "insufficient cpu", decide(s, asking(), nil).Verdicts[0].Reason())
	for _, uid := range []string{"a", "b", "c"} {
		s.Release(HolderOf(typesUID(uid)))
	}
	require.Equal(t, "q", decide(s, asking(), nil).Provider)
}

func TestSumsDoNotOverflow(t *testing.T) {
	s := stateOf(ready("q"))
	huge := resources.Amounts{corev1.ResourceEphemeralStorage: math.MaxInt64, corev1.ResourcePods: 1}
	for i := range 2000 {
		s.Assign(Assignment{UID: typesUID(strconv.Itoa(i)), Place: Place{"q", "q"}, Requests: huge})
	}
	assigned, count := s.Assigned(Place{"q", "q"})
	require.Equal(t, 2000, count)
	require.Equal(t, int64(math.MaxInt64), assigned[corev1.ResourceEphemeralStorage])
	for i := range 2000 {
		s.Release(HolderOf(typesUID(strconv.Itoa(i))))
	}
	assigned, _ = s.Assigned(Place{"q", "q"})
	require.Empty(t, assigned)
}

// TestImports keeps the packages that decide apart from those that act.
func TestImports(t *testing.T) {
	for _, dir := range []string{".", "score", "verdict", "../cel", "../resources"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, name := range files {
			source, err := os.ReadFile(name)
			require.NoError(t, err)
			file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
			require.NoError(t, err)
			for _, imported := range file.Imports {
				path := strings.Trim(imported.Path.Value, `"`)
				require.NotEqual(t, "net/http", path, name)
				require.False(t, strings.HasPrefix(path, "k8s.io/client-go"), "%s imports %s", name, path)
			}
		}
	}
}
