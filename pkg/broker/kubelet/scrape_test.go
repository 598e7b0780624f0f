package kubelet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// measures is a provider whose metric agent answers with a text, or not.
func measures(provider, text string) Scraper {
	return Scraper{Provider: provider, Scrape: func(_ context.Context, uri *url.URL) (io.ReadCloser, error) {
		if uri.RequestURI() != "/metrics/resource?a=b" {
			return nil, errors.New("another request")
		}
		return io.NopCloser(strings.NewReader(text)), nil
	}}
}

func page(t *testing.T, scrapers ...Scraper) string {
	t.Helper()
	server := serve(t, t.Context(), newAPIServer(t).config(), scrapers...)
	code, body := get(t, server, "/metrics/resource?a=b")
	require.Equal(t, http.StatusOK, code)
	require.NoError(t, valid([]byte(body)))
	return body
}

// valid returns an error unless a text can be read as Prometheus does.
func valid(text []byte) error {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	_, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	return err
}

// of names a pod of the fixture: "pod" and "astray" are at provider q, "third" at provider r.
func of(pod string) string { return `{container="main",namespace="ns",pod="` + pod + `"}` }

func TestMetricsOfSeveralProvidersBecomeOneText(t *testing.T) {
	broken := Scraper{Provider: "s", Scrape: func(context.Context, *url.URL) (io.ReadCloser, error) {
		return nil, errors.New("no answer")
	}}
	require.Equal(t, strings.Join([]string{
		"# TYPE a gauge", "a" + of("pod") + " 3",
		"# HELP b Those of the first.", "# TYPE b counter", "b" + of("pod") + " 1 1700000000000", "b" + of("astray") + " 2", "b" + of("third") + " 1.5",
		"# HELP node_cpu_usage_seconds_total All nodes.", "# TYPE node_cpu_usage_seconds_total counter", "node_cpu_usage_seconds_total 30.5", "",
	}, "\n"), page(t,
		measures("q", "# HELP b Those of the first.\n# TYPE b counter\nb"+of("pod")+" 1 1700000000000\nb"+of("astray")+" 2\n"+
			"# TYPE a gauge\na"+of("pod")+" 3\n"+
			"# HELP node_cpu_usage_seconds_total All nodes.\n# TYPE node_cpu_usage_seconds_total counter\n"+
			"node_cpu_usage_seconds_total 10.500000 1700000000000\n"),
		measures("r", "# HELP b Others.\n# TYPE b counter\nb"+of("third")+" 1.5\n"+
			"# TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total 20 1700000000001\n"),
		broken,
	))
}

func TestAProviderNamesItsOwnPodsOnly(t *testing.T) {
	require.Equal(t, "# TYPE b counter\nb"+of("pod")+" 1\n", page(t,
		measures("q", "# TYPE b counter\nb"+of("pod")+" 1\nb"+of("third")+" 9\nb"+of("waiting")+" 9\nb"+of("none")+" 9\n"+
			`b{namespace="kube-system",pod="pod"} 9`+"\n"+`b{namespace="ns"} 9`+"\n"+"b 9\n"+`b{pod="pod"} 9`+"\n"),
		measures("r", "# TYPE b counter\nb"+of("pod")+" 9\n# TYPE scrape_error gauge\nscrape_error 0\n"),
		measures("elsewhere", "# TYPE b counter\nb"+of("pod")+" 9\n"),
	))
}

func TestASeriesIsThereOnce(t *testing.T) {
	require.Equal(t, "# TYPE b counter\nb"+of("pod")+" 1\n", page(t, measures("q", "# TYPE b counter\nb"+of("pod")+" 1\nb"+of("pod")+" 2\n"+
		`b{pod="pod", namespace="ns",container="main" ,none="",} 3`+"\n")))
}

func TestAMistypedMetricIsLeftOutAlone(t *testing.T) {
	good := "# TYPE good counter\ngood" + of("pod") + " 1\n"
	for name, text := range map[string]string{
		"no type that there is":  "# TYPE bad kind\nbad" + of("pod") + " 1\n",
		"no metric":              "no metric\n",
		"no name":                "{} 1\n{pod=\"pod\",namespace=\"ns\"} 1\n",
		"a name in quotes":       `{"bad",namespace="ns",pod="pod"} 1` + "\n",
		"no value":               "bad" + of("pod") + "\n",
		"a value that is none":   "bad" + of("pod") + " one\nbad" + of("pod") + " 0x1p4\nbad" + of("pod") + " 1e999\n",
		"a wrong timestamp":      "bad" + of("pod") + " 1 yesterday\nbad" + of("pod") + " 1 1 1\n",
		"labels named twice":     `bad{namespace="ns",pod="third",pod="pod"} 1` + "\n",
		"a wrong escape":         `bad{namespace="ns",pod="pod",a="\x"} 1` + "\n",
		"no closing quote":       `bad{namespace="ns",pod="pod",a="\"} 1` + "\n",
		"no closing brace":       `bad{namespace="ns",pod="pod" 1` + "\n",
		"a label that is none":   `bad{namespace="ns",pod="pod",1="x"} 1` + "\nbad{namespace=\"ns\",pod=\"pod\",__name__=\"x\"} 1\n",
		"no UTF-8":               "bad{namespace=\"ns\",pod=\"pod\",a=\"\xff\"} 1\n",
		"control characters":     "bad{namespace=\"ns\",pod=\"pod\",a=\"\x1b[2J\"} 1\n",
		"no bucket":              "# TYPE bad histogram\nbad" + of("pod") + " 1\nbad_bucket" + of("pod") + " 1\n",
		"no quantile":            "# TYPE bad summary\nbad" + of("pod") + " 1\n",
		"nodes with a NaN":       "# TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes NaN\n",
		"nodes with names":       "# TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes" + of("pod") + " 1\n",
		"a line without end":     "bad" + of("pod") + strings.Repeat(" ", 3*maxLine) + "1\n",
		"a text that ends early": good + "bad" + of("pod") + " 1",
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, good, page(t, measures("q", text+good)))
		})
	}
}

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
		"one declares twice": {
			texts: []string{"# HELP b One.\n" + counter + of("pod") + " 1\n# HELP b Two.\n" + counter + of("astray") + " 2\n" + gauge + of("astray") + " 3\n"},
			want:  "# HELP b One.\n" + counter + of("pod") + " 1\nb" + of("astray") + " 2\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*families
			for i, text := range tc.texts {
				pods := [][]string{{"pod", "astray"}, {"third"}, {"fourth"}}[i]
				f, err := read(strings.NewReader(text), named(pods...))
				require.NoError(t, err)
				all = append(all, f)
			}
			text := merge(all)
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

// endless is a text that goes on.
type endless struct {
	piece func(i int) string
	i     int
	rest  string
	// given counts what was read (bytes).
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
			f, err := read(io.MultiReader(strings.NewReader(good), text), named("pod"))
			require.ErrorIs(t, err, errCut)
			require.LessOrEqual(t, text.given, maxMetrics)
			merged := merge([]*families{f})
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

// TestThePageIsValid makes texts of pieces that mean something.
func TestThePageIsValid(t *testing.T) {
	pieces := []string{
		"# TYPE ", "# HELP ", "#", "a", "a_sum", "a_count", "a_bucket", "node_cpu_usage_seconds_total", " counter", " gauge", " histogram",
		" summary", " untyped", " other", "\n", "\n", "\n", "{", "}", ",", `le="1"`, `quantile="0.5"`, `le="NaN"`, `le="x"`, `b="`, `"`, `\`, `\n`,
		" ", "\t", "1", "-1", "NaN", "+Inf", "1e400", "é", "\xff", "\x00", "\r", of("pod"), of("pod"), of("third"), of("pod") + " 1\n", " 1\n",
		`{namespace="ns",pod="pod",le="1"} 1` + "\n", `{namespace="ns",pod="pod",quantile="1"} 1` + "\n",
	}
	random := rand.New(rand.NewPCG(1, 2))
	full := 0
	for range 20000 {
		var all []*families
		for range 3 {
			var text strings.Builder
			for range random.IntN(40) {
				text.WriteString(pieces[random.IntN(len(pieces))])
			}
			f, err := read(strings.NewReader(text.String()), named("pod"))
			require.NoError(t, err)
			all = append(all, f)
		}
		merged := merge(all)
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
		var all []*families
		for _, text := range []string{one, another} {
			metrics, _ := read(strings.NewReader(text), named("pod"))
			all = append(all, metrics)
		}
		if merged := merge(all); valid(merged) != nil {
			t.Errorf("%q: %s", merged, valid(merged))
		}
	})
}
