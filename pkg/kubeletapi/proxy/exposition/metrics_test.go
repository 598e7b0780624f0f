package exposition

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// valid returns an error unless Prometheus can read the text.
func valid(text []byte) error {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	_, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	return err
}

// of returns the labels of a pod of the fixture: "pod" and "astray" are at provider q, "third" at provider r.
func of(pod string) string { return `{container="main",namespace="ns",pod="` + pod + `"}` }

func TestProvidersThatContradictEachOther(t *testing.T) {
	counter, gauge := "# TYPE b counter\nb", "# TYPE b gauge\nb"
	for name, tc := range map[string]struct {
		texts []string
		want  string
	}{
		"the first counts": {
			texts: []string{counter + of("pod") + " 1\n", gauge + of("third") + " 1\n"}, want: counter + of("pod") + " 1\n",
		},
		"what most declare counts": {
			texts: []string{gauge + of("pod") + " 1\n", counter + of("third") + " 1\n", counter + of("fourth") + " 1\n"},
			want:  counter + of("third") + " 1\nb" + of("fourth") + " 1\n",
		},
		"a declaration without series does not": {
			texts: []string{gauge + `{namespace="ns",pod="none"} 1` + "\n", counter + of("third") + " 1\n"},
			want:  counter + of("third") + " 1\n",
		},
		"one takes the names of another's samples": {
			texts: []string{
				"# TYPE b histogram\nb_count" + of("pod") + " 1\n", "# TYPE b_count counter\nb_count" + of("third") + " 1\n",
				"# TYPE b_count counter\nb_count" + of("fourth") + " 1\n",
			},
			want: "# TYPE b_count counter\nb_count" + of("third") + " 1\nb_count" + of("fourth") + " 1\n",
		},
		"what cannot be shown is left out": {
			texts: []string{
				counter + of("pod") + " 1\nb{namespace=\"ns\",pod=\"pod\",x=\"\u202ea\"} 2\n" +
					"b{namespace=\"ns\",pod=\"pod\",x=\"\u009b2J\"} 3\n",
			},
			want: counter + of("pod") + " 1\n",
		},
		"one declares twice": {
			texts: []string{
				"# HELP b One.\n" + counter + of("pod") + " 1\n" +
					"# HELP b Two.\n" + counter + of("astray") + " 2\n" + gauge + of("astray") + " 3\n",
			},
			want: "# HELP b One.\n" + counter + of("pod") + " 1\nb" + of("astray") + " 2\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*Metrics
			for i, text := range tc.texts {
				pods := [][]string{{"pod", "astray"}, {"third"}, {"fourth"}}[i]
				f, err := Read(strings.NewReader(text), named(pods...), time.Now())
				require.NoError(t, err)
				all = append(all, f)
			}
			text := Merge(all)
			require.Equal(t, tc.want, string(text))
			require.NoError(t, valid(text))
		})
	}
}

func named(pods ...string) sets.Set[types.NamespacedName] {
	all := sets.New[types.NamespacedName]()
	for _, pod := range pods {
		all.Insert(types.NamespacedName{Namespace: "ns", Name: pod})
	}
	return all
}

// endless is a text that never ends.
type endless struct {
	piece func(i int) string
	i     int
	rest  string
	// given counts the bytes that were read.
	given int
}

func (e *endless) Read(data []byte) (int, error) {
	for len(e.rest) < len(data) {
		e.rest += e.piece(e.i)
		e.i++
	}
	n := copy(data, e.rest)
	e.rest = e.rest[n:]
	e.given += n
	return n, nil
}

func TestATextWithoutEndIsCut(t *testing.T) {
	for name, piece := range map[string]func(i int) string{
		"of series":       func(i int) string { return series(i) + of("pod") + " 1\n" },
		"of types":        func(i int) string { return "# TYPE " + series(i) + " counter\n" },
		"of helps":        func(i int) string { return "# HELP " + series(i) + " " + strings.Repeat("x", 4000) + "\n" },
		"of one line":     func(int) string { return "# " + strings.Repeat("x", 4000) },
		"of others' pods": func(i int) string { return series(i) + of("third") + strings.Repeat(" ", 4000) + " 1\n" },
	} {
		t.Run(name, func(t *testing.T) {
			text := &endless{piece: piece}
			good := "# TYPE good counter\ngood" + of("pod") + " 1\n"
			f, err := Read(io.MultiReader(strings.NewReader(good), text), named("pod"), time.Now())
			require.ErrorIs(t, err, errCut)
			require.LessOrEqual(t, text.given, maxMetrics)
			merged := Merge([]*Metrics{f})
			require.NoError(t, valid(merged))
			require.Contains(t, string(merged), good)
			require.Less(t, len(merged), 2*maxMetricsOfPod)
		})
	}
}

func series(i int) string {
	name := []byte("x")
	for ; i > 0; i /= 10 {
		name = append(name, byte('0'+i%10))
	}
	return string(name)
}

// TestThePageIsValid builds texts from pieces of the format.
func TestThePageIsValid(t *testing.T) {
	pieces := []string{
		"# TYPE ", "# HELP ", "#", "a", "a_sum", "a_count", "a_bucket", "node_cpu_usage_seconds_total", " counter", " gauge", " histogram",
		" summary", " untyped", " other", "\n", "\n", "\n", "{", "}", ",",
		`le="1"`, `quantile="0.5"`, `le="NaN"`, `le="x"`, `b="`, `"`, `\`, `\n`,
		" ", "\t", "1", "-1", "NaN", "+Inf", "1e400", "é", "\xff", "\x00", "\r",
		of("pod"), of("pod"), of("third"), of("pod") + " 1\n", " 1\n",
		`{namespace="ns",pod="pod",le="1"} 1` + "\n", `{namespace="ns",pod="pod",quantile="1"} 1` + "\n",
	}
	random := rand.New(rand.NewPCG(1, 2))
	full := 0
	for range 20000 {
		var all []*Metrics
		for range 3 {
			var text strings.Builder
			for range random.IntN(40) {
				text.WriteString(pieces[random.IntN(len(pieces))])
			}
			f, err := Read(strings.NewReader(text.String()), named("pod"), time.Now())
			require.NoError(t, err)
			all = append(all, f)
		}
		merged := Merge(all)
		require.NoError(t, valid(merged), "%s", merged)
		if len(merged) > 0 {
			full++
		}
	}
	require.Greater(t, full, 3000, "most texts would say nothing otherwise")
}

func FuzzThePageIsValid(f *testing.F) {
	f.Add("# TYPE a counter\na"+of("pod")+" 1\n", "# TYPE a histogram\na_bucket"+`{namespace="ns",pod="pod",le="1"} 1`+"\n")
	f.Fuzz(func(t *testing.T, one, another string) {
		var all []*Metrics
		for _, text := range []string{one, another} {
			metrics, _ := Read(strings.NewReader(text), named("pod"), time.Now())
			all = append(all, metrics)
		}
		if merged := Merge(all); valid(merged) != nil {
			t.Errorf("%q: %s", merged, valid(merged))
		}
	})
}
