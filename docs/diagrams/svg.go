package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
)

const (
	lineHeight = 16
	// raise is how far the foot of a letter is below the middle of its line.
	raise = 4
)

// style follows the reader's preference for dark or light.
const style = `
text { font: 13px ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
.frame { fill: #f6f8fa; stroke: #d0d7de; }
.box { fill: #ffffff; stroke: #57606a; }
.soft { fill: none; stroke: #8c959f; stroke-dasharray: 4 3; }
.name { font-weight: 600; }
.line { stroke: #0969da; stroke-width: 1.5; fill: none; }
.dash { stroke-dasharray: 5 4; }
.head { fill: #0969da; }
.said { fill: #57606a; font-size: 12px; paint-order: stroke; stroke: #ffffff; stroke-width: 6px; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .frame { fill: #161b22; stroke: #30363d; }
  .box { fill: #0d1117; stroke: #8b949e; }
  .soft { stroke: #6e7681; }
  .line { stroke: #58a6ff; }
  .head { fill: #58a6ff; }
  .said { fill: #9198a1; stroke: #0d1117; }
}
`

func (d *drawing) svg() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n",
		d.width, d.height, d.width, d.height, escaped(d.title))
	fmt.Fprintf(&out, "<title>%s</title>\n<style>%s</style>\n", escaped(d.title), style)
	fmt.Fprintln(&out, `<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">`+
		`<path class="head" d="M0 0 8 4 0 8z"/></marker></defs>`)
	for i := range d.shapes {
		d.shapes[i].svg(&out)
	}
	for i := range d.arrows {
		d.arrows[i].svg(&out)
	}
	fmt.Fprintln(&out, "</svg>")
	return out.Bytes()
}

func (s *shape) svg(out *bytes.Buffer) {
	fmt.Fprintf(out, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="6"/>`+"\n", s.kind, s.x, s.y, s.width, s.height)
	if s.kind == "frame" {
		for i, line := range s.lines {
			write(out, "name", "start", s.x+12, s.y+16+i*lineHeight, line)
		}
		return
	}
	for i, line := range s.lines {
		class := "plain"
		if i == 0 {
			class = "name"
		}
		write(out, class, "middle", s.x+s.width/2, s.y+s.height/2+middle(i, len(s.lines)), line)
	}
}

// middle is how far below the middle of several lines the one with the index is.
func middle(i, lines int) int { return (2*i - lines + 1) * lineHeight / 2 }

func write(out *bytes.Buffer, class, anchor string, x, y int, text string) {
	fmt.Fprintf(out, `<text class="%s" text-anchor="%s" x="%d" y="%d">%s</text>`+"\n", class, anchor, x, y+raise, escaped(text))
}

func (a *arrow) svg(out *bytes.Buffer) {
	x1, y1, x2, y2 := a.ends()
	class := "line"
	if a.dashed {
		class = "line dash"
	}
	fmt.Fprintf(out, `<path class="%s" d="M%d %d %d %d" marker-end="url(#head)"/>`+"\n", class, x1, y1, x2, y2)
	for i, line := range a.lines {
		write(out, "said", "middle", (x1+x2)/2, (y1+y2)/2+middle(i, len(a.lines)), line)
	}
}

// ends are where the arrow leaves one shape and meets the other: in the middle of what their sides share, or of the
// sides that face each other.
func (a *arrow) ends() (x1, y1, x2, y2 int) {
	from, to := a.from, a.to
	switch {
	case to.x >= from.x+from.width:
		x1, x2 = from.x+from.width, to.x
		y1, y2 = shared(from.y, from.height, to.y, to.height)
	case from.x >= to.x+to.width:
		x1, x2 = from.x, to.x+to.width
		y1, y2 = shared(from.y, from.height, to.y, to.height)
	case to.y >= from.y+from.height:
		y1, y2 = from.y+from.height, to.y
		x1, x2 = shared(from.x, from.width, to.x, to.width)
	default:
		y1, y2 = from.y, to.y+to.height
		x1, x2 = shared(from.x, from.width, to.x, to.width)
	}
	return x1, y1, x2, y2
}

func shared(a, aLength, b, bLength int) (at, bt int) {
	begin, end := max(a, b), min(a+aLength, b+bLength)
	if begin < end {
		return (begin + end) / 2, (begin + end) / 2
	}
	return a + aLength/2, b + bLength/2
}

func escaped(text string) string {
	var out bytes.Buffer
	_ = xml.EscapeText(&out, []byte(text)) // A Buffer takes all.
	return out.String()
}
