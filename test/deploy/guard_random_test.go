package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// mutator changes objects at random but keeps the type of each field: the API server rejects other types before
// admission.
type mutator struct{ *rand.Rand }

func (m mutator) text() string {
	const longest = 300_000
	return [...]string{
		"", "x", "-1000", "-1Ti", "900Gi", "c1", "c2", "true", "Drained", "TolerateNoHandshake", "kube-system", "10.0.0.1",
		strings.Repeat("\x01", m.IntN(longest)), strings.Repeat("x", m.IntN(longest)),
	}[m.IntN(14)]
}

// key returns a random key of a label, an annotation or a resource.
func (m mutator) key() string {
	return [...]string{
		"liqo.io/nonce", "liqo.io/webhook", "brokering.liqo.io/virtual-node", "brokering.liqo.io/filter", "example.org/a", "cpu",
		"metallb.io/loadBalancerIPs", "grafana_dashboard", "kubectl.kubernetes.io/last-applied-configuration",
		strings.Repeat("k", m.IntN(100_000)),
	}[m.IntN(10)]
}

// change returns a value of the same type.
func (m mutator) change(value any) any {
	switch v := value.(type) {
	case string:
		return m.text()
	case bool:
		return !v
	case int64:
		return m.Int64() - m.Int64()
	case []any:
		return m.list(v)
	case map[string]any:
		return m.fields(v)
	}
	return value
}

func (m mutator) list(v []any) any {
	switch {
	case len(v) == 0:
		return v
	case m.IntN(3) == 0:
		return slices.Repeat(v, 1+m.IntN(3000/len(v)+1))
	}
	changed := slices.Clone(v)
	i := m.IntN(len(v))
	changed[i] = m.change(v[i])
	return changed
}

func (m mutator) fields(v map[string]any) any {
	changed, keys := maps.Clone(v), slices.Sorted(maps.Keys(v))
	if len(keys) == 0 {
		return changed
	}
	key := keys[m.IntN(len(keys))]
	if _, isText := v[key].(string); isText && m.IntN(3) == 0 {
		changed[m.key()] = m.text()
		return changed
	}
	changed[key] = m.change(v[key])
	return changed
}

// metadata sets random values in the metadata that a client may set.
func (m mutator) metadata(o *unstructured.Unstructured) {
	switch m.IntN(8) {
	case 0:
		o.SetFinalizers([]string{"evil.example/keep"})
	case 1:
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "1"}})
	case 2:
		annotations := map[string]string{}
		for range m.IntN(2000) {
			annotations[m.key()] = m.text()
			if len(annotations) > 20 {
				annotations[fmt.Sprint("example.org/", m.Int64())] = "x"
			}
		}
		o.SetAnnotations(annotations)
	case 3:
		o.SetLabels(map[string]string{m.key(): "true"})
	}
}

// broken returns why an object must not have been admitted, by rules that are written here a second time; "" if it may.
func broken(o *unstructured.Unstructured) string {
	annotations := 0
	for key, value := range o.GetAnnotations() {
		annotations += len(key) + len(value)
	}
	most := map[string]int{
		"ResourceSlice": 16384, "Renew": 16384, "NamespaceMap": 16384, "Tenant": 16384, "Secret": 262144, "ConfigMap": 262144,
	}
	limit, special := most[o.GetKind()]
	if !special {
		limit = 65536
	}
	condition, _, _ := unstructured.NestedString(o.Object, "spec", "tenantCondition")
	raw, _ := json.Marshal(o.Object["spec"])
	switch {
	case annotations > limit:
		return fmt.Sprintf("%d bytes of annotations", annotations)
	case len(o.GetFinalizers())+len(o.GetOwnerReferences()) > 0:
		return "finalizers or owners"
	case condition != "" && condition != "Active":
		return "another condition of the Tenant"
	case o.GetNamespace() == tenantNamespace && o.GetKind() == "Secret" && len(o.Object) > 4:
		return fmt.Sprintf("a Secret with %v", slices.Sorted(maps.Keys(o.Object)))
	case o.GetKind() == "NamespaceMap" && len(raw) > 2000*200:
		return "a large NamespaceMap"
	}
	return brokenPod(o)
}

// brokenPod returns why a ShadowPod must not have been admitted with its containers; "" if it may.
func brokenPod(o *unstructured.Unstructured) string {
	texts := 0
	for _, field := range []string{"containers", "initContainers"} {
		all, _, _ := unstructured.NestedSlice(o.Object, "spec", "pod", field)
		for i := range all {
			c := all[i].(map[string]any)
			requests, _, _ := unstructured.NestedMap(c, "resources", "requests")
			limits, _, _ := unstructured.NestedMap(c, "resources", "limits")
			for name, amount := range requests {
				if strings.HasPrefix(fmt.Sprint(amount), "-") {
					return "a negative request of " + name
				}
			}
			for name := range limits {
				if _, requested := requests[name]; !requested {
					return "a limit without a request of " + name
				}
			}
			for _, field := range []string{"env", "args", "command"} {
				text, _ := json.Marshal(c[field])
				texts += strings.Count(string(text), "x")
			}
		}
	}
	if texts > 262144 {
		return fmt.Sprintf("%d bytes of variables and arguments", texts)
	}
	return ""
}

// number reads a number from the environment: WRITES is the number of writes, SEED the seed that determines them.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// Each party writes randomly changed objects. Every admitted object respects the bounds, and no write keeps the API
// server busy.
func TestRandomWritesStayWithinTheBounds(t *testing.T) {
	plugin, parties := guard(t), written(t)
	for kind, p := range parties {
		if kind == "ShadowPod" {
			first := p.o.Object["spec"].(map[string]any)["pod"].(map[string]any)["containers"].([]any)[0].(map[string]any)
			first["resources"] = map[string]any{"requests": map[string]any{"cpu": "1"}, "limits": map[string]any{"cpu": "1"}}
			first["env"] = []any{map[string]any{"name": "A", "value": "x"}}
			first["args"] = []any{"x"}
		}
	}
	kinds := slices.Sorted(maps.Keys(parties))
	admitted, slowest, seed := 0, time.Duration(0), number(t, "SEED", 0)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range number(t, "WRITES", 150) {
		m := mutator{rand.New(rand.NewPCG(uint64(seed), uint64(i)))} // Reproducible.
		p := parties[kinds[m.IntN(len(kinds))]]
		o := p.o.DeepCopy()
		for range 1 + m.IntN(3) {
			for _, part := range []string{"spec", "data"} {
				if o.Object[part] != nil {
					o.Object[part] = m.change(o.Object[part])
				}
			}
			m.metadata(o)
		}
		old := []*unstructured.Unstructured{nil, p.o}[m.IntN(2)]
		began := time.Now()
		err := write(t, plugin, p.who, p.resource, "", old, o)
		slowest = max(slowest, time.Since(began))
		if err == nil {
			admitted++
			require.Empty(t, broken(o), "seed %d, write %d: %s by %s", seed, i, o.GetKind(), p.who)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Positive(t, admitted)
	require.Less(t, slowest, 5*time.Second)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(64<<20), "nothing of them is kept")
	t.Logf("%d were admitted; the slowest took %v", admitted, slowest)
}
