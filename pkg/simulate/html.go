package simulate

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

// The limits of a page. JSON has everything.
const (
	maxLines     = 8
	maxHeatRows  = 100
	maxColumns   = 96
	maxDifferent = 200
)

// The sizes of charts, in units of their viewBox.
const (
	chartWidth, chartHeight = 720.0, 200.0
	labelWidth, rowHeight   = 130.0, 16.0
)

// page has the values of page.html.
type page struct {
	Names     []string
	Tables    []table
	Charts    []charts
	Different []Difference
	Left      int
}

// charts are the charts of one scenario.
type charts struct {
	ID, Name string
	// Hours are the texts of the columns.
	Hours []string
	// Shares and Use have lines and rows; the numbers of those that are left out.
	Shares           []line
	Use              []heatRow
	SharesLeft, Left int
	// Most is the share at the top of the chart. HeatHeight is the height of the heat map, TicksAt where its hours are.
	Most                string
	HeatHeight, TicksAt float64
	Ticks               []tick
}

type line struct {
	Name, Points string
	Number       int
	Values       []string
}

type heatRow struct {
	Name  string
	Y     float64
	Cells []cell
}

type cell struct{ X, Width, Share, Text string }

type tick struct{ X, Text string }

// decimals returns a number for an attribute.
func decimals(value float64) string { return strconv.FormatFloat(value, 'f', 2, 64) }

// WriteHTML writes the comparison as one page without references to other files.
func (c *Comparison) WriteHTML(out io.Writer) error {
	functions := template.FuncMap{"join": func(texts []string) string { return cmp.Or(strings.Join(texts, " → "), "never placed") }}
	parsed, err := template.New("page").Funcs(functions).Parse(pageText)
	if err != nil {
		return err
	}
	p := page{Names: c.names(), Tables: c.tables(), Different: c.Different[:min(len(c.Different), maxDifferent)]}
	p.Left = len(c.Different) - len(p.Different)
	most := 0.01 // The scale is the same for all scenarios.
	for _, r := range c.Scenarios {
		for i := range r.Consumers {
			most = max(most, slices.Max(r.Consumers[i].Share))
		}
	}
	for i, r := range c.Scenarios {
		p.Charts = append(p.Charts, chartsOf(r, fmt.Sprintf("s%d", i+1), most))
	}
	return parsed.Execute(out, p)
}

// chartsOf returns the charts of a report. Columns are hours, or several of them.
func chartsOf(r *Report, id string, most float64) charts {
	hours := 0
	if len(r.Consumers) > 0 {
		hours = len(r.Consumers[0].Share)
	}
	step := (hours + maxColumns - 1) / maxColumns
	ch := charts{ID: id, Name: r.Scenario, Most: percent(most)}
	for hour := 0; hour < hours; hour += step {
		ch.Hours = append(ch.Hours, r.Start.Add(time.Duration(hour)*time.Hour).Format("Jan 2 15:04"))
	}
	ch.addShares(r, step, most)
	ch.addUse(r, step)
	width := chartWidth / float64(max(1, len(ch.Hours)))
	for i := 0; i < len(ch.Hours); i += max(1, len(ch.Hours)/8) {
		ch.Ticks = append(ch.Ticks, tick{X: decimals(labelWidth + width*float64(i)), Text: ch.Hours[i]})
	}
	return ch
}

func (ch *charts) addShares(r *Report, step int, most float64) {
	consumers := slices.Clone(r.Consumers)
	slices.SortStableFunc(consumers, func(x, y ConsumerReport) int { return cmp.Compare(mean(y.Share), mean(x.Share)) })
	ch.SharesLeft = max(0, len(consumers)-maxLines)
	consumers = consumers[:len(consumers)-ch.SharesLeft]
	for i := range consumers {
		values := columnsOf(consumers[i].Share, step)
		l := line{Name: consumers[i].Consumer, Number: i + 1}
		var points strings.Builder
		width := chartWidth / float64(len(values))
		for k, value := range values {
			fmt.Fprintf(&points, "%.1f,%.1f ", labelWidth+width*(float64(k)+0.5), chartHeight*(1-value/most))
			l.Values = append(l.Values, percent(value))
		}
		l.Points = strings.TrimSpace(points.String())
		ch.Shares = append(ch.Shares, l)
	}
}

func (ch *charts) addUse(r *Report, step int) {
	providers := slices.Clone(r.Providers)
	if ch.Left = max(0, len(providers)-maxHeatRows); ch.Left > 0 {
		slices.SortStableFunc(providers, func(x, y ProviderReport) int { return cmp.Compare(mean(y.Used), mean(x.Used)) })
		providers = providers[:maxHeatRows]
	}
	for i := range providers {
		row := heatRow{Name: providers[i].Provider, Y: rowHeight * float64(i)}
		values := columnsOf(providers[i].Used, step)
		width := chartWidth / float64(len(values))
		for k, value := range values {
			row.Cells = append(row.Cells, cell{
				X: decimals(labelWidth + width*float64(k)), Width: decimals(width), Share: decimals(min(1, value)), Text: percent(value),
			})
		}
		ch.Use = append(ch.Use, row)
	}
	ch.TicksAt = rowHeight*float64(len(providers)) + 10
	ch.HeatHeight = ch.TicksAt + 10
}

// columnsOf returns the means of each so many values.
func columnsOf(values []float64, step int) []float64 {
	var means []float64
	for chunk := range slices.Chunk(values, max(1, step)) {
		means = append(means, mean(chunk))
	}
	return means
}
