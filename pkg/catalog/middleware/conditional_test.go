package middleware

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzIfNoneMatch(f *testing.F) {
	for _, list := range []string{"", "*", `W/"a"`, `"a", W/"b"`, `,,"`} {
		f.Add(list, "a")
	}
	f.Fuzz(func(t *testing.T, list, content string) {
		if strings.ContainsAny(content, "\",* \t\r\n\v\f\u0085\u00a0") || strings.TrimSpace(content) != content {
			return
		}
		tag := `W/"` + content + `"`
		require.True(t, hasTag([]string{`"` + list, tag}, tag))
		if !strings.Contains(list, content) && !strings.Contains(list, "*") {
			require.False(t, hasTag([]string{list}, tag))
		}
	})
}
