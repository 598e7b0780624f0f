// Command words counts wordings that are hard to read in the comments of Go files and in documents, and fails if one occurs
// more often than its ceiling in words.txt.
package main

import (
	"bufio"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

//go:embed words.txt
var list string

// rule is a line of words.txt.
type rule struct {
	// goCeiling and docsCeiling are how often the wording may occur in comments, and in documents.
	goCeiling, docsCeiling int
	wording                *regexp.Regexp
	instead                string
}

// text is a line that people read.
type text struct {
	file string
	line int
	text string
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("words", flag.ContinueOnError)
	flags.SetOutput(stderr)
	directory := flags.String("directory", ".", "the root of the repository")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rules, err := parse(list)
	if err != nil {
		return err
	}
	names, err := exec.Command("git", "-C", *directory, "ls-files", "-z", "*.go", "*.md").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	var comments, documents []text
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(*directory, name))
		switch {
		case errors.Is(err, os.ErrNotExist) || skipped(name):
		case err != nil:
			return err
		case strings.HasSuffix(name, ".go"):
			comments = append(comments, commentsOf(name, content)...)
		default:
			documents = append(documents, linesOf(name, content)...)
		}
	}
	exceeded := false
	for _, r := range rules {
		exceeded = check(stdout, r, "comments", r.goCeiling, comments) || exceeded
		exceeded = check(stdout, r, "documents", r.docsCeiling, documents) || exceeded
	}
	if exceeded {
		return errors.New("a wording occurs more often than its ceiling in tools/words/words.txt")
	}
	return nil
}

// skipped are files whose texts are not ours to word, or are as they were once.
func skipped(name string) bool {
	return name == "CHANGELOG.md" || strings.Contains(name, "testdata/") || strings.Contains(name, "/zz_") || strings.HasSuffix(name, ".pb.go")
}

// parse reads rules: ceiling in comments, ceiling in documents, regular expression and what to write instead, separated by tabs.
func parse(list string) (rules []rule, err error) {
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 4 {
			return nil, fmt.Errorf("words.txt: %q has %d fields, want 4 with tabs between them", line, len(fields))
		}
		r := rule{instead: fields[3]}
		if r.goCeiling, err = strconv.Atoi(fields[0]); err != nil {
			return nil, fmt.Errorf("words.txt: %w", err)
		}
		if r.docsCeiling, err = strconv.Atoi(fields[1]); err != nil {
			return nil, fmt.Errorf("words.txt: %w", err)
		}
		if r.wording, err = regexp.Compile("(?i)" + fields[2]); err != nil {
			return nil, fmt.Errorf("words.txt: %w", err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// check prints where a wording occurs if that is more often than its ceiling, and reports whether it is.
func check(out io.Writer, r rule, where string, ceiling int, in []text) bool {
	count := 0
	var places strings.Builder
	for _, t := range in {
		if n := len(r.wording.FindAllString(t.text, -1)); n > 0 {
			count += n
			fmt.Fprintf(&places, "%s:%d: %s\n", t.file, t.line, strings.TrimSpace(t.text))
		}
	}
	switch {
	case count > ceiling:
		fmt.Fprintf(out, "%s%q occurs %d times in %s, at most %d: write %s\n\n", places.String(), r.wording, count, where, ceiling, r.instead)
	case count < ceiling:
		fmt.Fprintf(out, "%q occurs %d times in %s: the ceiling in tools/words/words.txt can be lowered from %d\n", r.wording, count, where, ceiling)
	}
	return count > ceiling
}

// commentsOf returns the lines of the comments of a Go file.
func commentsOf(name string, content []byte) (all []text) {
	set := token.NewFileSet()
	file := set.AddFile(name, -1, len(content))
	var s scanner.Scanner
	s.Init(file, content, nil, scanner.ScanComments)
	for {
		pos, tok, comment := s.Scan()
		if tok == token.EOF {
			return all
		}
		if tok != token.COMMENT {
			continue
		}
		first := file.Line(pos)
		for i, line := range strings.Split(comment, "\n") {
			all = append(all, text{name, first + i, line})
		}
	}
}

// linesOf returns the lines of a document, without those of code blocks.
func linesOf(name string, content []byte) (all []text) {
	code := false
	lines := bufio.NewScanner(strings.NewReader(string(content)))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if strings.HasPrefix(strings.TrimSpace(lines.Text()), "```") {
			code = !code
		} else if !code {
			all = append(all, text{name, n, lines.Text()})
		}
	}
	return all
}
