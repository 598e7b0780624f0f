package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/go-logr/zapr"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func TestLinesHaveNoCharactersOfControl(t *testing.T) {
	const hostile = "\x1b[2Ja\x00\r\nb\u202e\u200b\u009b\x7f\u2028\U000e0041ü<b>a\u0301\u0301\u0301\u0301\u0301"
	for _, format := range []string{"json", "console"} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			log := zapr.NewLogger(zap.New(zapcore.NewCore(newEncoder(format), zapcore.AddSync(&out), zap.InfoLevel)))
			log.WithValues("given", hostile).Error(errors.New(hostile), "Cannot "+hostile, hostile, hostile)
			for _, r := range strings.ReplaceAll(strings.ReplaceAll(out.String(), "\n", ""), "\t", "") {
				require.True(t, unicode.IsPrint(r), "%q in %q", r, out.String())
			}
			require.Contains(t, out.String(), "ü<b>")
			require.Contains(t, out.String(), `\u001b[2Ja`)
			require.Contains(t, out.String(), "<b>a\u0301\u0301\u0301\u0301"+`\u0301`)
			require.Contains(t, out.String(), `\u202e\u200b\u009b\u007f\u2028\udb40\udc41`)
			require.Equal(t, 1, strings.Count(out.String(), "\n"), "it is one line")
			if format == "json" {
				line := map[string]any{}
				require.NoError(t, json.Unmarshal(out.Bytes(), &line))
				require.Equal(t, hostile, line["given"], "nothing is lost")
				require.Equal(t, hostile, line["error"])
				require.Equal(t, "Cannot "+hostile, line["msg"])
			}
		})
	}
}
