package simulate

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// compared has two days that differ in one weight.
func compared(t *testing.T) *Comparison {
	t.Helper()
	one, other := run(t, day), run(t, with(day, "name: price, weight: 3", "name: price, weight: 0"))
	one.Scenario, other.Scenario = "one", "other"
	return Compare(one, other)
}

func TestCompare(t *testing.T) {
	c := compared(t)
	require.Equal(t, c.Scenarios[0].Pods.Arrived, c.Common)
	require.Equal(t, []int{0, len(c.Different)}, c.DifferentFromFirst)
	for _, d := range c.Different {
		require.NotEqual(t, d.Places[0], d.Places[1], d.Pod)
	}

	same := Compare(c.Scenarios[0], c.Scenarios[0])
	require.Empty(t, same.Different)
	require.Equal(t, []int{0, 0}, same.DifferentFromFirst)

	fewer := run(t, with(day, "- id: bank", "- id: other"))
	c = Compare(c.Scenarios[0], fewer)
	require.Equal(t, c.Scenarios[0].Consumers[0].Arrived, c.Common, "the pods of the bank are in one only")
}

func TestWriteJSON(t *testing.T) {
	c := compared(t)
	var out bytes.Buffer
	require.NoError(t, c.WriteJSON(&out))
	var read struct {
		Scenarios []struct {
			Scenario  string
			Pods      map[string]int
			Costs     []struct{ Key []string }
			Providers []struct {
				Provider  string
				Resources map[string]struct{ Granted, Assigned []float64 }
			}
		}
		Different []struct {
			Pod    string
			Places [][]string
		}
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &read))
	require.Len(t, read.Scenarios, 2)
	require.Equal(t, c.Scenarios[1].Pods.Arrived, read.Scenarios[1].Pods["arrived"])
	require.Len(t, read.Scenarios[0].Providers[0].Resources["cpu"].Assigned, 24)
	require.Len(t, read.Different, len(c.Different))
}

func TestWriteCSV(t *testing.T) {
	c := compared(t)
	var out bytes.Buffer
	require.NoError(t, c.WriteCSV(&out))
	rows, err := csv.NewReader(&out).ReadAll()
	require.NoError(t, err)
	require.Equal(t, columns(), rows[0])
	require.Len(t, rows, 1+2*c.Common)
	differ := 0
	for _, row := range rows[1:] {
		if row[len(row)-1] == "true" {
			differ++
		}
	}
	require.Equal(t, 2*len(c.Different), differ)
}

func TestWriteTable(t *testing.T) {
	c := compared(t)
	var out bytes.Buffer
	require.NoError(t, c.WriteTable(&out))
	for _, want := range []string{
		`RESULT +one +other`, `pods arrived +\d+ +\d+`, `moves, provider_drained +\d+`, `places differ from one +0 of \d+ +\d+ of \d+`,
		`CONSUMER +PROVIDER +one`, `shop +oslo +[\d.]+ EUR +[\d.]+ EUR`, `turin-1 +\d+%, \d+%`,
	} {
		require.Regexp(t, regexp.MustCompile(want), out.String())
	}
	require.NotContains(t, out.String(), "never placed because", "all were placed")

	// Many rows are cut.
	out.Reset()
	require.NoError(t, Compare(run(t, with(oneProvider, "- id: oslo", "- id: oslo\n  count: 50"))).WriteTable(&out))
	require.Contains(t, out.String(), "and 30 more: use -o json")
	out.Reset()
	require.NoError(t, Compare(run(t, with(oneProvider, "cpu: 1,", "cpu: 3,", `"0.05"`, `"0"`))).WriteTable(&out))
	require.Regexp(t, regexp.MustCompile(`insufficient cpu +3\n`), out.String())
}

func TestCostsWithoutAPrice(t *testing.T) {
	r := run(t, with(oneProvider, `prices: [{currency: EUR, perHour: {cpu: "0.05"}}]`, "attributes: {region: eu}"))
	var out bytes.Buffer
	require.NoError(t, Compare(r).WriteTable(&out))
	require.Regexp(t, regexp.MustCompile(`shop +oslo +3.00 pod-hours without a price`), out.String())
	require.Regexp(t, regexp.MustCompile(`cost +-`), out.String())
}

// The page has no references to other files, and names are text.
func TestWriteHTML(t *testing.T) {
	c := compared(t)
	c.Scenarios[0].Scenario = "<script>alert(1)</script>"
	var out bytes.Buffer
	require.NoError(t, c.WriteHTML(&out))
	text := out.String()
	for _, never := range []string{"<script", "http:", "https:", "src=", "url(", "@import", "<link", "ZgotmplZ", "%!"} {
		require.NotContains(t, text, never)
	}
	require.Contains(t, text, "&lt;script&gt;")
	require.Contains(t, text, "prefers-color-scheme: dark")
	require.Equal(t, 2*len(c.Scenarios[0].Providers), strings.Count(text, "<g transform"))
	require.Equal(t, 2*len(c.Scenarios[0].Consumers), strings.Count(text, "<polyline"))
	require.Equal(t, 24*2*len(c.Scenarios[0].Providers), strings.Count(text, "<rect"))
	require.Equal(t, strings.Count(text, `role="img"`), strings.Count(text, "<title id="), "each chart has a text")
	require.Equal(t, strings.Count(text, "<table"), strings.Count(text, "<thead"))
	require.Contains(t, text, "Pods whose places differ")
}

// A long time and many providers do not make a page that no browser shows.
func TestAPageIsBounded(t *testing.T) {
	values := func(n, of int) (values []float64) {
		for i := range of {
			values = append(values, float64((i+n)%10)/10)
		}
		return values
	}
	const hours = 500
	r := &Report{Scenario: "long"}
	for i := range 102 {
		r.Providers = append(r.Providers, ProviderReport{Provider: fmt.Sprintf("p%d", i), Used: values(i, hours)})
	}
	for i := range 11 {
		r.Consumers = append(r.Consumers, ConsumerReport{Consumer: fmt.Sprintf("c%d", i), Share: values(i, hours)})
	}
	var out bytes.Buffer
	require.NoError(t, Compare(r).WriteHTML(&out))
	require.Equal(t, maxHeatRows, strings.Count(out.String(), "<g transform"))
	require.LessOrEqual(t, strings.Count(out.String(), "<rect"), maxHeatRows*maxColumns)
	require.Equal(t, maxLines, strings.Count(out.String(), "<polyline"))
	require.Contains(t, out.String(), "3 consumers with smaller shares are not shown")
	require.Contains(t, out.String(), "2 providers that are used less are not shown")
}

type full struct{ left int }

var errFull = errors.New("no space")

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestWriteErrors(t *testing.T) {
	c := compared(t)
	for name, write := range map[string]func(io.Writer) error{
		"table": c.WriteTable, "json": c.WriteJSON, "csv": c.WriteCSV, "html": c.WriteHTML,
	} {
		require.ErrorIs(t, write(&full{left: 10}), errFull, name)
	}
}
