package httpserve

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAKeyHasAsManyAsAreFree(t *testing.T) {
	f := NewFair(12)
	take := func(key string) (releases []func()) {
		for release, ok := f.Take(key); ok; release, ok = f.Take(key) {
			releases = append(releases, release)
		}
		return releases
	}
	first := take("x")
	require.Len(t, first, 6)
	require.Len(t, take("y"), 3)
	require.Len(t, take("z"), 2, "half of what is left, rounded up")
	first[0]()
	first[0]()
	require.Equal(t, 2, f.free, "released twice, it is free once")
	require.Empty(t, take("x"), "it has more than is free")
	for _, release := range first {
		release()
	}
	require.NotContains(t, f.open, "x", "a key with nothing open is not kept")
	require.Len(t, take("x"), 4)
}
