package untrusted

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"a short text stays":                    {"no answer: 500 Internal Server Error", "no answer: 500 Internal Server Error"},
		"a text of the exact length stays":      {strings.Repeat("x", MaxText), strings.Repeat("x", MaxText)},
		"a longer one is cut":                   {strings.Repeat("x", MaxText+1), strings.Repeat("x", MaxText-3) + "…"},
		"no character is cut in two":            {"x" + strings.Repeat("é", MaxText), "x" + strings.Repeat("é", (MaxText-4)/2) + "…"},
		"nor one of four bytes":                 {strings.Repeat("🙂", MaxText), strings.Repeat("🙂", (MaxText-3)/4) + "…"},
		"lines become one, and control is lost": {"a\nb\tc\x1b[31md\x00", "a b c [31md "},
		"nothing turns or hides a text":         {"a\u202eb\u200bc\ufeffd\u2066e\u00a0f", "a b c d e f"},
		"no marks cover other lines": {
			"a" + strings.Repeat("\u0301", 300) + "b\u0301", "a" + strings.Repeat("\u0301", maxMarks) + "b\u0301",
		},
		"nor those of the upper half":    {"a\u009b2Jb\u0085c\u007fd\u2028e\U000e0041f", "a 2Jb c d e f"},
		"what is not UTF-8 is not kept":  {"a\xff\xfeb", "a b"},
		"bytes that are no text are cut": {strings.Repeat("\xff", 2*MaxText), " …"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Text(tc.text)
			require.Equal(t, tc.want, got)
			require.LessOrEqual(t, len(got), MaxText)
			require.True(t, utf8.ValidString(got))
		})
	}
}

func TestLinesStay(t *testing.T) {
	require.Equal(t, "a\n\tb c d [2Je", Lines("a\n\tb\u202ec\rd\x1b[2Je"))
}

func TestAValueIsQuotedInAFewCharacters(t *testing.T) {
	for text, quoted := range map[string]string{
		"move":                           `"move"`,
		`a "b"`:                          `"a \"b\""`,
		"a\nb":                           `"a b"`,
		strings.Repeat("a", 250_000):     `"` + strings.Repeat("a", 61) + `…"`,
		strings.Repeat("\x01", 250_000):  `"` + strings.Repeat(" ", 61) + `…"`,
		strings.Repeat("\u202e", 30_000): `"` + strings.Repeat(" ", 20) + `…"`,
	} {
		require.Equal(t, quoted, Value(text))
	}
}
