package exposition

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scraped returns the metrics of a node whose providers all measure these CPU seconds and bytes; with "" they report no
// valid value.
func (u *Usage) scraped(t *testing.T, now time.Time, grant Grant, cpu, memory string, providers ...string) string {
	t.Helper()
	var all []*Metrics
	for _, provider := range providers {
		text := fmt.Sprintf("# TYPE %s counter\n%s %s\n# TYPE %s gauge\n%s %s\n", nodeCPU, nodeCPU, cpu, nodeMemory, nodeMemory, memory)
		f, err := Read(strings.NewReader(text), named(), now)
		require.NoError(t, err)
		u.Bound(provider, f, grant, now)
		all = append(all, f)
	}
	text := Merge(all)
	require.NoError(t, valid(text))
	return string(text)
}

func TestAProviderAddsNoMoreThanItsGrantToTheMetricsOfTheNode(t *testing.T) {
	u, now, grant := NewUsage(), time.Now(), Grant{CPU: 2, Memory: 100}
	for _, step := range []struct{ cpu, memory, wantCPU, wantMemory string }{
		{"1000", "30", "0", "60"},
		{"1010", "30", "20", "60"},
		{"1.7e308", "1.7e308", "60", "200"}, // At most 2 CPUs for 10 s each, and all memory.
		{"5", "1", "60", "2"},               // The counters of its nodes restarted.
		{"6", "1", "62", "2"},
	} {
		text := u.scraped(t, now, grant, step.cpu, step.memory, "p", "q")
		require.Contains(t, text, nodeCPU+" "+step.wantCPU+"\n", step.cpu)
		require.Contains(t, text, nodeMemory+" "+step.wantMemory+"\n", step.cpu)
		now = now.Add(10 * time.Second)
	}
}

func TestTheSumDoesNotDecreaseWhenAProviderDoesNotAnswer(t *testing.T) {
	u, now, grant := NewUsage(), time.Now(), Grant{CPU: 2, Memory: 100}
	u.scraped(t, now, grant, "1", "1", "p", "q")
	now = now.Add(10 * time.Second)
	u.scraped(t, now, grant, "11", "1", "p", "q")
	f, err := Read(strings.NewReader("# TYPE "+nodeCPU+" counter\n"+nodeCPU+" 11\n"), named(), now)
	require.NoError(t, err)
	u.Bound("p", f, grant, now)
	require.Contains(t, string(Merge([]*Metrics{f, u.Missing("q", []*Metrics{f, nil})})), nodeCPU+" 20\n")
	require.Empty(t, Merge([]*Metrics{u.Missing("q", []*Metrics{newMetrics(), nil})}), "of cAdvisor there are no sums")
}
