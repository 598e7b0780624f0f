// Package exposition reads the metrics of provider clusters, which are not trusted, in the text format of Prometheus,
// and merges the metrics of several providers into one text.
package exposition

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

const (
	// maxMetrics bounds the size of one provider's metrics (bytes). The rest is not read.
	maxMetrics = 64 << 20
	// maxMetricsOfPod bounds their kept size for each pod that is assigned there, and for the nodes (bytes). cAdvisor
	// has a hundred series of 400 bytes for each container.
	maxMetricsOfPod = 256 << 10
	// maxKept bounds the kept size of one provider's metrics, for any number of pods (bytes).
	maxKept = 32 << 20
	// overhead is the memory of a sample or a declaration in addition to its text (bytes).
	overhead = 128
	// maxLine is the longest line that is read (bytes). Longer lines are omitted.
	maxLine = 8 << 10
)

// errCut means that only a part of the metrics was read.
var errCut = errors.New("the provider's metrics exceed the size limit, the rest is omitted")

// nodeMetrics are the metrics that Liqo's metric agent returns as a sum over the nodes of the provider, without labels
// (pkg/remotemetrics of Liqo v1.2.0).
var nodeMetrics = sets.New(nodeCPU, nodeMemory)

// family is a metric: its samples and its declarations.
type family struct {
	// kind is the type, such as "counter".
	kind, help string
	// lines are samples in Prometheus' format, without the newlines.
	lines []string
	// sum is the value of one of the nodeMetrics, if summed.
	sum    float64
	summed bool
}

// suffixes returns the name suffixes of the samples in a family of a kind; false if there is no such kind.
func suffixes(kind string) ([]string, bool) {
	switch kind {
	case "counter", "gauge", "untyped":
		return []string{""}, true
	case "summary":
		return []string{"", "_sum", "_count"}, true
	case "histogram":
		return []string{"_bucket", "_sum", "_count"}, true
	}
	return nil, false
}

// fits reports whether a family of a kind and a name may contain the sample.
func (s *sample) fits(kind, name string) bool {
	suffix := strings.TrimPrefix(s.name, name)
	if allowed, ok := suffixes(kind); !ok || !slices.Contains(allowed, suffix) {
		return false
	}
	number := map[string]string{"histogram_bucket": "le", "summary": "quantile"}[kind+suffix]
	if number == "" {
		return true
	}
	text := s.label(number)
	_, err := strconv.ParseFloat(text, 64)
	return err == nil && !strings.ContainsAny(text, "pP_")
}

// Metrics is a set of metrics in which no two have a sample of the same name.
type Metrics struct {
	byName map[string]*family
	// ownerOf has the name of the family by the names of its samples.
	ownerOf map[string]string
	// helpFor is the metric of the last HELP line, and help its text. That line may come before the type is declared.
	helpFor, help string
}

func newMetrics() *Metrics {
	return &Metrics{byName: map[string]*family{}, ownerOf: map[string]string{}}
}

// declare returns the family of a name and a kind, and adds it if it is new. It returns nil if one of its names already
// belongs to another family.
func (f *Metrics) declare(name, kind string) *family {
	if known := f.byName[name]; known != nil && known.kind == kind {
		return known
	}
	allowed, _ := suffixes(kind)
	names := []string{name}
	for _, suffix := range allowed {
		names = append(names, name+suffix)
	}
	for _, taken := range names {
		if f.ownerOf[taken] != "" {
			return nil
		}
	}
	for _, taken := range names {
		f.ownerOf[taken] = name
	}
	added := &family{kind: kind}
	if f.helpFor == name {
		added.help = f.help
	}
	f.byName[name] = added
	return added
}

// owner returns the family of a sample; nil if the family of its name cannot contain it. A sample without a family is
// untyped.
func (f *Metrics) owner(of *sample) *family {
	name := f.ownerOf[of.name]
	if name == "" {
		name = of.name
		f.declare(name, "untyped")
	}
	if known := f.byName[name]; of.fits(known.kind, name) {
		return known
	}
	return nil
}

// Read returns the valid part of a provider's text: the series of these pods, each once, and the metrics of its nodes,
// if they are finite numbers measured about now. The error concerns the rest of the text.
func Read(text io.Reader, pods sets.Set[types.NamespacedName], now time.Time) (*Metrics, error) {
	limited := &io.LimitedReader{R: text, N: maxMetrics}
	lines := bufio.NewReaderSize(limited, maxLine)
	f, seen := newMetrics(), sets.New[string]()
	left := min(maxKept, (1+len(pods))*maxMetricsOfPod)
	for {
		line, err := lines.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) {
			line = nil
			_, err = lines.ReadSlice('\n')
		}
		switch {
		case limited.N == 0 && err != nil:
			return f, errCut
		case errors.Is(err, io.EOF):
			return f, nil // A line without a newline is incomplete.
		case err != nil:
			return f, err
		}
		if left -= f.add(string(bytes.TrimSpace(line)), pods, seen, now); left < 0 {
			return f, errCut
		}
	}
}

// add reads a line, and returns the size that it keeps (bytes).
func (f *Metrics) add(line string, pods sets.Set[types.NamespacedName], seen sets.Set[string], now time.Time) int {
	if strings.HasPrefix(line, "#") {
		return f.comment(line)
	}
	s, ok := parseSample(line)
	if !ok || math.IsNaN(s.value) || math.IsInf(s.value, 0) || s.skew(now) > maxSkew {
		return 0
	}
	ofNode := nodeMetrics.Has(s.name)
	if ofNode && (len(s.labels) > 0 || s.value < 0) {
		return 0
	}
	if !ofNode && !pods.Has(types.NamespacedName{Namespace: s.label("namespace"), Name: s.label("pod")}) {
		return 0
	}
	of, series := f.owner(&s), s.series()
	if of == nil || seen.Has(series) {
		return 0
	}
	line = series + " " + s.measured()
	seen.Insert(line[:len(series)]) // It shares the memory of the line.
	if ofNode {
		of.sum, of.summed = s.value, true
	} else {
		of.lines = append(of.lines, line)
	}
	return len(line) + overhead
}

// comment reads a line that declares the type or the help of a metric. Of two types the first counts.
func (f *Metrics) comment(line string) int {
	keyword, rest, _ := strings.Cut(strings.TrimLeft(line[1:], " \t"), " ")
	name, text, _ := strings.Cut(strings.TrimSpace(rest), " ")
	if !model.LegacyValidation.IsValidMetricName(name) {
		return 0
	}
	switch keyword {
	case "HELP":
		f.helpFor, f.help = name, untrusted.Text(helpText.Replace(text))
	case "TYPE":
		f.declare(name, strings.ToLower(strings.TrimSpace(text)))
		return len(line) + len(f.help) + overhead
	}
	return 0
}

// helpText unescapes the text of a HELP line; helpLine escapes it.
var (
	helpText = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\"`, `"`)
	helpLine = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

// Merge returns the metrics of all providers as one text. If declarations of a metric contradict each other, the
// declaration of most providers wins, and the first one on a tie. The samples of the other providers are then omitted:
// a single provider cannot break or hide a metric that the others declare in the same way.
func Merge(all []*Metrics) []byte {
	type declaration struct{ name, kind string }
	var declared []declaration
	votes := map[declaration]int{}
	for _, f := range all {
		for _, name := range slices.Sorted(maps.Keys(f.byName)) {
			if of := f.byName[name]; len(of.lines) > 0 || of.summed {
				d := declaration{name: name, kind: of.kind}
				votes[d]++
				declared = append(declared, d)
			}
		}
	}
	slices.SortStableFunc(declared, func(a, b declaration) int { return cmp.Compare(votes[b], votes[a]) })
	page := newMetrics()
	for _, d := range declared {
		page.declare(d.name, d.kind)
	}
	for _, f := range all {
		for name, of := range f.byName {
			into := page.byName[name]
			if into == nil || into.kind != of.kind {
				continue
			}
			into.help = cmp.Or(into.help, of.help)
			into.lines = append(into.lines, of.lines...)
			into.sum += of.sum
			into.summed = into.summed || of.summed
		}
	}
	return page.text()
}

// text writes the metrics in Prometheus' format, sorted by name. A sum has no timestamp: its parts were measured at
// different times.
func (f *Metrics) text() []byte {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(f.byName)) {
		of := f.byName[name]
		if of.help != "" {
			fmt.Fprintf(&out, "# HELP %s %s\n", name, helpLine.Replace(of.help))
		}
		fmt.Fprintf(&out, "# TYPE %s %s\n", name, of.kind)
		for _, line := range of.lines {
			out.WriteString(line)
			out.WriteByte('\n')
		}
		if of.summed {
			fmt.Fprintf(&out, "%s %s\n", name, strconv.FormatFloat(of.sum, 'g', -1, 64))
		}
	}
	return out.Bytes()
}
