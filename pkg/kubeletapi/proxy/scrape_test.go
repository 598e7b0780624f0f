package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi/proxy/exposition"
)

// measures returns a Scraper of a provider whose metric agent answers with a text.
func measures(provider, text string) Scraper {
	grant := exposition.Grant{CPU: 4, Memory: 1 << 30}
	return Scraper{Provider: provider, Grant: grant, Scrape: func(_ context.Context, uri *url.URL) (io.ReadCloser, error) {
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

// valid returns an error unless Prometheus can read the text.
func valid(text []byte) error {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	_, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	return err
}

// of returns the labels of a pod of the fixture: "pod" and "astray" are at provider q, "third" at provider r.
func of(pod string) string { return `{container="main",namespace="ns",pod="` + pod + `"}` }

func TestMetricsOfSeveralProvidersBecomeOneText(t *testing.T) {
	broken := Scraper{Provider: "s", Scrape: func(context.Context, *url.URL) (io.ReadCloser, error) {
		return nil, errors.New("no answer")
	}}
	now := fmt.Sprint(time.Now().UnixMilli())
	require.Equal(t, strings.Join([]string{
		"# TYPE a gauge", "a" + of("pod") + " 3",
		"# HELP b Those of the first.", "# TYPE b counter",
		"b" + of("pod") + " 1 " + now, "b" + of("astray") + " 2", "b" + of("third") + " 1.5",
		"# HELP node_memory_working_set_bytes All nodes.", "# TYPE node_memory_working_set_bytes gauge",
		"node_memory_working_set_bytes 30.5", "",
	}, "\n"), page(t,
		measures("q", "# HELP b Those of the first.\n# TYPE b counter\nb"+of("pod")+" 1 "+now+"\nb"+of("astray")+" 2\n"+
			"# TYPE a gauge\na"+of("pod")+" 3\n"+
			"# HELP node_memory_working_set_bytes All nodes.\n# TYPE node_memory_working_set_bytes gauge\n"+
			"node_memory_working_set_bytes 10.500000 "+now+"\n"),
		measures("r", "# HELP b Others.\n# TYPE b counter\nb"+of("third")+" 1.5\n"+
			"# TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes 20 "+now+"\n"),
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
		"no type that there is":     "# TYPE bad kind\nbad" + of("pod") + " 1\n",
		"no metric":                 "no metric\n",
		"no name":                   "{} 1\n{pod=\"pod\",namespace=\"ns\"} 1\n",
		"a name in quotes":          `{"bad",namespace="ns",pod="pod"} 1` + "\n",
		"no value":                  "bad" + of("pod") + "\n",
		"a value that is none":      "bad" + of("pod") + " one\nbad" + of("pod") + " 0x1p4\nbad" + of("pod") + " 1e999\n",
		"a wrong timestamp":         "bad" + of("pod") + " 1 yesterday\nbad" + of("pod") + " 1 1 1\n",
		"labels named twice":        `bad{namespace="ns",pod="third",pod="pod"} 1` + "\n",
		"a wrong escape":            `bad{namespace="ns",pod="pod",a="\x"} 1` + "\n",
		"no closing quote":          `bad{namespace="ns",pod="pod",a="\"} 1` + "\n",
		"no closing brace":          `bad{namespace="ns",pod="pod" 1` + "\n",
		"a label that is none":      `bad{namespace="ns",pod="pod",1="x"} 1` + "\nbad{namespace=\"ns\",pod=\"pod\",__name__=\"x\"} 1\n",
		"no UTF-8":                  "bad{namespace=\"ns\",pod=\"pod\",a=\"\xff\"} 1\n",
		"control characters":        "bad{namespace=\"ns\",pod=\"pod\",a=\"\x1b[2J\"} 1\n",
		"no bucket":                 "# TYPE bad histogram\nbad" + of("pod") + " 1\nbad_bucket" + of("pod") + " 1\n",
		"no quantile":               "# TYPE bad summary\nbad" + of("pod") + " 1\n",
		"a value that is no number": "bad" + of("pod") + " NaN\nbad" + of("pod") + " +Inf\nbad" + of("pod") + " -Inf\n",
		"a time that is over":       "bad" + of("pod") + " 1 1700000000000\n",
		"a time to come":            "bad" + of("pod") + " 1 99999999999999\n",
		"nodes with a NaN":          "# TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes NaN\n",
		"nodes with names":          "# TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes" + of("pod") + " 1\n",
		"a line without end":        "bad" + of("pod") + strings.Repeat(" ", 3*(8<<10)) + "1\n",
		"a text that ends early":    good + "bad" + of("pod") + " 1",
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, good, page(t, measures("q", text+good)))
		})
	}
}
