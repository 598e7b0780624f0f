package untrusted

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxText bounds a text of another cluster that is written into a condition or an event (bytes), as Kubernetes bounds
// the note of an event.
const MaxText = 1024

// maxValue bounds a value of an annotation or a field that a message quotes (bytes).
const maxValue = 64

// maxMarks is the number of marks, such as accents, that one character may have. Scripts need two or three; a hundred
// cover the lines above and below.
const maxMarks = 4

// Text returns a text of another cluster for a condition or an event: at most MaxText bytes, in one line, and without
// invisible characters that change the visible text, such as characters that turn the direction of a text.
func Text(text string) string { return printable(Cut(text, MaxText), "") }

// Value quotes a value that a tenant or another cluster wrote, for a message: the beginning of it, in one line. %q
// would write a control character as four.
func Value(text string) string { return strconv.Quote(printable(Cut(text, maxValue), "")) }

// Lines returns a text of another cluster with its lines and tabulators, and otherwise without such characters.
func Lines(text string) string { return printable(text, "\n\t") }

// Marks counts the marks of a character.
type Marks int

// TooMany reports, for each rune of a text in turn, whether it is a mark beyond the number that a character may have.
func (m *Marks) TooMany(r rune) bool {
	if !unicode.IsMark(r) {
		*m = 0
		return false
	}
	*m++
	return *m > maxMarks
}

func printable(text, except string) string {
	var marks Marks
	return strings.Map(func(r rune) rune {
		if marks.TooMany(r) {
			return -1
		}
		if !unicode.IsPrint(r) && !strings.ContainsRune(except, r) {
			return ' '
		}
		return r
	}, text)
}

const ellipsis = "…"

// Cut returns a text of at most so many bytes, in valid UTF-8.
func Cut(text string, most int) string {
	if len(text) <= most {
		return strings.ToValidUTF8(text, " ")
	}
	end := most - len(ellipsis)
	for back := 0; back < utf8.UTFMax-1 && end > 0 && !utf8.RuneStart(text[end]); back++ {
		end-- // It is within a character.
	}
	return strings.ToValidUTF8(text[:end], " ") + ellipsis
}
