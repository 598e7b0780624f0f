package docs

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"unicode"
)

// Document is a file in Markdown, as far as the tests are concerned.
type Document struct {
	// Path is as it was given to Read.
	Path     string
	Sections []Section
	Links    []Link
	Blocks   []Block
}

// Section begins at a heading, and ends where the next one begins.
type Section struct {
	Title string
	// Anchor is the fragment of links to the heading, as GitHub makes it.
	Anchor string
	// Line is that of the heading, counted from 1. Text has all lines after it.
	Line int
	Text string
}

// Link is one of the text, not of a block.
type Link struct {
	Line   int
	Target string
}

// Block is fenced code.
type Block struct {
	// Line is that of the fence.
	Line     int
	Language string
	// RunBy is the text of the comment <!-- run by: … --> on the line before the fence; "" without one.
	RunBy string
	Text  string
}

// Values of Block.RunBy. CONTRIBUTING.md describes them.
const (
	// RunByTest is `go test`, without clusters. The block has prompts and the output of the commands.
	RunByTest = "go test"
	// RunBySandbox is a test in the clusters of test/sandbox. The name of the cluster follows.
	RunBySandbox = "sandbox "
	// RunByInstall is test/install, in clusters with real containers.
	RunByInstall = "install"
	// RunByReader marks commands that no test runs: they need other clusters, or much time.
	RunByReader = "reader"
)

// IsCommand reports whether a block has commands that a reader can run.
func (b *Block) IsCommand() bool {
	switch b.Language {
	case "sh", "bash", "shell", "console":
		return true
	}
	return strings.HasPrefix(b.Text, "$ ") || strings.Contains(b.Text, "\n$ ")
}

// Commands returns the lines that are commands: the lines with a prompt if there are any, else all lines except
// comments. A line that ends with a backslash is joined with the next one.
func (b *Block) Commands() []string {
	prompts := strings.HasPrefix(b.Text, "$ ") || strings.Contains(b.Text, "\n$ ")
	var commands []string
	for line := range strings.Lines(strings.ReplaceAll(b.Text, "\\\n", " ")) {
		line, prompted := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if line == "" || prompted != prompts || strings.HasPrefix(line, "#") {
			continue
		}
		commands = append(commands, line)
	}
	return commands
}

var (
	heading = regexp.MustCompile(`^#{1,6} +(.+?) *#*$`)
	comment = regexp.MustCompile(`^<!-- run by: (.+) -->$`)
	fence   = regexp.MustCompile("^ *(```+|~~~+) *([^ `]*)")
	link    = regexp.MustCompile(`\]\(([^()\s]+)(?: +"[^"]*")?\)|<(https?:[^<>\s]+)>|^\[[^]]+\]: +(\S+)$`)
	code    = regexp.MustCompile("`+[^`]*`+")
	linked  = regexp.MustCompile(`!?\[([^]]*)\]\([^)]*\)`)
)

// Read reads a document.
func Read(path string) (*Document, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d := &Document{Path: path}
	anchors := map[string]int{}
	var open *Block
	var closing, runBy string
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if len(d.Sections) > 0 {
			d.Sections[len(d.Sections)-1].Text += line
		}
		line = strings.TrimRight(line, "\r\n")
		switch parts := fence.FindStringSubmatch(line); {
		case open != nil && strings.TrimSpace(line) == closing:
			d.Blocks = append(d.Blocks, *open)
			open = nil
		case open != nil:
			open.Text += line + "\n"
		case parts != nil:
			open, closing = &Block{Line: number, Language: parts[2], RunBy: runBy}, parts[1]
		default:
			d.readLine(line, number, anchors)
		}
		runBy = ""
		if parts := comment.FindStringSubmatch(strings.TrimSpace(line)); parts != nil {
			runBy = parts[1]
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s:%d: the block is not closed", path, open.Line)
	}
	return d, nil
}

// readLine reads a line that is not in a block.
func (d *Document) readLine(line string, number int, anchors map[string]int) {
	for _, parts := range link.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
		d.Links = append(d.Links, Link{Line: number, Target: parts[1] + parts[2] + parts[3]})
	}
	parts := heading.FindStringSubmatch(line)
	if parts == nil {
		return
	}
	title := linked.ReplaceAllString(parts[1], "$1")
	anchor := anchorOf(title)
	if n := anchors[anchor]; n > 0 {
		anchors[anchor]++
		anchor = fmt.Sprintf("%s-%d", anchor, n)
	} else {
		anchors[anchor] = 1
	}
	d.Sections = append(d.Sections, Section{Title: title, Anchor: anchor, Line: number})
}

// anchorOf follows GitHub: lower case, nothing but letters, digits, hyphens and underscores, hyphens for spaces.
func anchorOf(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

// Rewritten returns the text of a document with other texts in the blocks whose fences are on some lines.
func Rewritten(document string, blocks map[int]string) string {
	var out strings.Builder
	number, skipping := 0, false
	for line := range strings.Lines(document) {
		number++
		if skipping && fence.MatchString(line) {
			skipping = false
		}
		if !skipping {
			out.WriteString(line)
		}
		if text, other := blocks[number]; other {
			out.WriteString(text)
			skipping = true
		}
	}
	return out.String()
}
