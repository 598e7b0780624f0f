package criteria

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCache(t *testing.T) {
	c := NewCache(2)
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
	require.Len(t, c.entries, 2)
	require.Equal(t, 2, c.order.Len())
	kept, err := c.Filter("true")
	require.NoError(t, err)
	require.Same(t, first, kept, "the one used last stays")

	_, err = c.Filter(strings.Repeat(" ", MaxLength) + "true")
	require.ErrorIs(t, err, ErrExpression)
	require.Len(t, c.entries, 2, "what is too long is not kept")
}

func TestCacheIsSafeForConcurrentUse(t *testing.T) {
	c := NewCache(3)
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
	require.Len(t, c.entries, 3)
}
