package logging

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"

	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"

	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

// printable is an encoder that removes characters that a terminal would interpret or that hide others. Errors quote
// other clusters. zap escapes such characters only in ASCII, and only in JSON.
type printable struct {
	zapcore.Encoder
	// console is the format in which a message is not in quotes.
	console bool
}

// Clone implements zapcore.Encoder.
func (p printable) Clone() zapcore.Encoder { return printable{p.Encoder.Clone(), p.console} }

// EncodeEntry implements zapcore.Encoder.
func (p printable) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	if p.console {
		entry.Message = strings.ReplaceAll(entry.Message, "\n", `\n`) // Else it could look like our own lines.
	}
	line, err := p.Encoder.EncodeEntry(entry, fields)
	if err != nil {
		return line, err
	}
	if text := line.String(); !plain(text) {
		line.Reset()
		line.AppendString(escape(text))
	}
	return line, nil
}

// plain reports whether there is nothing to escape, as in nearly all lines.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < ' ' || c > '~') && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// escape writes unprintable characters as JSON does. In JSON they are within strings. Lines and tabulators are from the
// encoder, or from a stack trace.
func escape(text string) string {
	var out strings.Builder
	var marks untrusted.Marks
	for _, r := range text {
		if !marks.TooMany(r) && (unicode.IsPrint(r) || r == '\n' || r == '\t') {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String()
}
