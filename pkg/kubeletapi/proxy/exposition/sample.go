package exposition

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/common/model"
)

// sample is a line of a text in Prometheus' format: a series, its value, and its timestamp.
type sample struct {
	name string
	// labels are sorted by name. Labels without a value are omitted: Prometheus treats both as the same series.
	labels []label
	value  float64
	// timestamp is in milliseconds; nil if there is none.
	timestamp *int64
}

// label has the value in its escaped form, as in the line.
type label struct{ name, value string }

// parseSample returns false for a line that is not a sample, or that has non-printable characters. It rejects quoted
// names and duplicate labels.
func parseSample(line string) (sample, bool) {
	if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) && r != '\t' }) {
		return sample{}, false
	}
	end := strings.IndexAny(line, "{ \t")
	if end < 0 || !model.LegacyValidation.IsValidMetricName(line[:end]) {
		return sample{}, false
	}
	s := sample{name: line[:end]}
	rest := strings.TrimLeft(line[end:], " \t")
	if labels, ok := strings.CutPrefix(rest, "{"); ok {
		if s.labels, rest, ok = parseLabels(labels); !ok {
			return sample{}, false
		}
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 || len(fields) > 2 || strings.ContainsAny(fields[0], "pP_") {
		return sample{}, false
	}
	var err error
	if s.value, err = strconv.ParseFloat(fields[0], 64); err != nil {
		return sample{}, false
	}
	if len(fields) == 2 {
		timestamp, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return sample{}, false
		}
		s.timestamp = &timestamp
	}
	return s, true
}

// parseLabels reads the text after an opening brace, and returns the text after the closing one.
func parseLabels(text string) (labels []label, rest string, ok bool) {
	for {
		text = strings.TrimLeft(text, " \t")
		if after, closed := strings.CutPrefix(text, "}"); closed {
			slices.SortFunc(labels, func(a, b label) int { return strings.Compare(a.name, b.name) })
			for i := 1; i < len(labels); i++ {
				if labels[i].name == labels[i-1].name {
					return nil, "", false
				}
			}
			return slices.DeleteFunc(labels, func(l label) bool { return l.value == "" }), after, true
		}
		name, after, found := strings.Cut(text, "=")
		name, after = strings.TrimRight(name, " \t"), strings.TrimLeft(after, " \t")
		if !found || !model.LegacyValidation.IsValidLabelName(name) || name == model.MetricNameLabel || after == "" || after[0] != '"' {
			return nil, "", false
		}
		length := quoted(after[1:])
		if length < 0 {
			return nil, "", false
		}
		labels = append(labels, label{name: name, value: after[1 : 1+length]})
		text = strings.TrimLeft(after[length+2:], " \t")
		if text, found = strings.CutPrefix(text, ","); !found && !strings.HasPrefix(text, "}") {
			return nil, "", false
		}
	}
}

// quoted returns the length of a label's value up to the closing quote; -1 if there is none, or an unknown escape.
func quoted(text string) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i
		case '\\':
			if i++; i == len(text) || !strings.ContainsRune(`\"n`, rune(text[i])) {
				return -1
			}
		}
	}
	return -1
}

// label returns the value of a label; "" if there is none.
func (s *sample) label(name string) string {
	for i := range s.labels {
		if s.labels[i].name == name {
			return s.labels[i].value
		}
	}
	return ""
}

// series returns the name with the labels.
func (s *sample) series() string {
	if len(s.labels) == 0 {
		return s.name
	}
	var text strings.Builder
	text.WriteString(s.name)
	separator := "{"
	for _, l := range s.labels {
		fmt.Fprintf(&text, `%s%s="%s"`, separator, l.name, l.value)
		separator = ","
	}
	text.WriteString("}")
	return text.String()
}

// measured returns the value with the timestamp.
func (s *sample) measured() string {
	text := strconv.FormatFloat(s.value, 'g', -1, 64)
	if s.timestamp != nil {
		text += " " + strconv.FormatInt(*s.timestamp, 10)
	}
	return text
}

// skew returns the distance between the timestamp and now; 0 if there is none.
func (s *sample) skew(now time.Time) time.Duration {
	if s.timestamp == nil {
		return 0
	}
	return now.Sub(time.UnixMilli(*s.timestamp)).Abs()
}
