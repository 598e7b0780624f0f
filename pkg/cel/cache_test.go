package cel

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCache(t *testing.T) {
	one := bytesOf("false", &Program{})
	c := NewCache(2*one + 1)
	first, err := c.Filter("true")
	require.NoError(t, err)
	again, err := c.Filter("true")
	require.NoError(t, err)
	require.Same(t, first, again)

	_, err = c.Score("true")
	require.ErrorIs(t, err, ErrExpression, "a score is not a filter of the same text")
	_, errAgain := c.Score("true")
	require.Same(t, err, errAgain)

	_, err = c.Filter("true")
	require.NoError(t, err)
	_, err = c.Filter("false")
	require.NoError(t, err)
	require.Len(t, c.programs.entries, 2)
	require.Equal(t, 2, c.programs.order.Len())
	require.Len(t, c.refused.entries, 1)
	require.True(t, c.HasFilter("true"))
	require.False(t, c.HasFilter("!true"))
	kept, err := c.Filter("true")
	require.NoError(t, err)
	require.Same(t, first, kept, "the one used last stays")

	_, err = c.Filter(strings.Repeat(" ", MaxLength) + "true")
	require.ErrorIs(t, err, ErrExpression)
	require.Len(t, c.programs.entries, 2, "what is too long is not kept")
}

// A tenant may have more rejected filters than the number of programs that are kept.
func TestTextsThatWereRefusedAreRemembered(t *testing.T) {
	const filters = 40
	c := NewCache(filters * 14 << 10)
	text := func(i int) string { return fmt.Sprintf("%d + %s", i, strings.Repeat("a + ", 1000)) }
	for i := range filters {
		_, err := c.Filter(text(i))
		require.ErrorIs(t, err, ErrExpression)
		_, err = c.Filter(fmt.Sprintf("provider.id == '%d'", i))
		require.NoError(t, err)
	}
	for i := range filters {
		require.True(t, c.HasFilter(text(i)))
	}
	require.LessOrEqual(t, c.refused.used, c.refused.size)
}

func TestCacheIsSafeForConcurrentUse(t *testing.T) {
	c := NewCache(200 << 10)
	var wait sync.WaitGroup
	for worker := range 4 {
		wait.Go(func() {
			for i := range 20 {
				p, err := c.Filter(fmt.Sprintf("provider.id == '%d'", (i+worker)%5))
				if err != nil {
					t.Error(err)
					return
				}
				if keep, err := p.Filter(variables()); keep || err != nil {
					t.Error(keep, err)
				}
			}
		})
	}
	wait.Wait()
	require.Positive(t, c.programs.used)
	require.LessOrEqual(t, c.programs.used, c.programs.size)
}

// The size counted for an entry is at least its actual size, for any expression.
func TestCacheTakesWhatItCounts(t *testing.T) {
	fill := func(term, with string) string { return term + strings.Repeat(with, (MaxLength-len(term))/len(with)-2) }
	for name, text := range map[string]string{
		"small":       "provider.id == 'q%03d'",
		"operators":   fill("1 == %03d"+strings.Repeat(" || 1 < 2", 95), " "),
		"loops":       fill("1 == %03d"+strings.Repeat(" || [1].all(a, true)", 9), " "),
		"elements":    fill("1 == %03d || 1 in [1", ",1") + "]",
		"expressions": "1 == %03d || 1 in [1" + strings.Repeat(",1-1", 190) + "]",
		"patterns":    "provider.id.matches('(a|%03d){400}')",
		"faults":      fill("%03d", " + a"),
	} {
		const entries = 20
		_, _ = NewCache(1 << 30).Filter(fmt.Sprintf(text, entries)) // Values that are made only once exist after this.
		c := NewCache(1 << 30)
		before := heap()
		for i := range entries {
			_, _ = c.Filter(fmt.Sprintf(text, i))
		}
		took, used := heap()-before, c.programs.used+c.refused.used
		t.Logf("%s: %d bytes each, %d counted, %d of text", name, took/entries, used/entries, len(text))
		require.LessOrEqual(t, took, used, name)
		runtime.KeepAlive(c)
	}
}

func heap() int {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
