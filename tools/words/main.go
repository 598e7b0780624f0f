// Command words counts wordings that are hard to read in the comments of Go files and in documents, and fails if one
// occurs more often than its ceiling in words.txt.
package main

import (
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

// text is a comment, or a paragraph of a document, with the number of its first line.
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
	git := exec.Command("git", "ls-files", "-z", "*.go", "*.md")
	git.Dir = *directory
	names, err := git.Output()
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
			documents = append(documents, paragraphsOf(name, content)...)
		}
	}
	return checkAll(stdout, rules, comments, documents)
}

func checkAll(out io.Writer, rules []rule, comments, documents []text) error {
	exceeded := 0
	for _, r := range rules {
		for _, in := range []struct {
			name    string
			ceiling int
			texts   []text
		}{{"comments", r.goCeiling, comments}, {"documents", r.docsCeiling, documents}} {
			switch count := r.check(out, in.name, in.ceiling, in.texts); {
			case count > in.ceiling:
				exceeded++
			case count < in.ceiling:
				fmt.Fprintf(out, "the ceiling %d in %s of %q can be lowered to %d\n", in.ceiling, in.name, r.instead, count)
			}
		}
	}
	if exceeded > 0 {
		return fmt.Errorf("%d wordings occur more often than their ceilings in tools/words/words.txt", exceeded)
	}
	return nil
}

// skipped are files whose texts are not ours to word, or are as they were once.
func skipped(name string) bool {
	return name == "CHANGELOG.md" || strings.Contains(name, "testdata/") || strings.Contains(name, "/zz_") ||
		strings.HasSuffix(name, ".pb.go")
}

// parse reads rules: ceiling in comments, ceiling in documents, regular expression and what to write instead, separated
// by tabs.
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
		if r.wording, err = regexp.Compile("(?i)" + strings.ReplaceAll(fields[2], " ", `[\s/]+`)); err != nil {
			return nil, fmt.Errorf("words.txt: %w", err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// check returns how often a wording occurs, also across the end of a line. It prints the places if that is more often
// than the ceiling.
func (r *rule) check(out io.Writer, where string, ceiling int, in []text) (count int) {
	var places strings.Builder
	for _, t := range in {
		for _, at := range r.wording.FindAllStringIndex(t.text, -1) {
			count++
			line := t.line + strings.Count(t.text[:at[0]], "\n")
			fmt.Fprintf(&places, "%s:%d: %s\n", t.file, line, t.text[at[0]:at[1]])
		}
	}
	if count > ceiling {
		fmt.Fprintf(out, "%s%s in %s: %d, at most %d; write %s\n\n", places.String(), r.wording, where, count, ceiling, r.instead)
	}
	return count
}

// commentsOf returns the comments of a Go file; those on successive lines are one.
func commentsOf(name string, content []byte) (all []text) {
	set := token.NewFileSet()
	file := set.AddFile(name, -1, len(content))
	var s scanner.Scanner
	s.Init(file, content, nil, scanner.ScanComments)
	last := -1
	for {
		pos, tok, comment := s.Scan()
		if tok == token.EOF {
			return all
		}
		if tok != token.COMMENT {
			continue
		}
		line := file.Line(pos)
		if line == last+1 {
			all[len(all)-1].text += "\n" + comment
		} else {
			all = append(all, text{name, line, comment})
		}
		last = line + strings.Count(comment, "\n")
	}
}

// paragraphsOf returns the paragraphs of a document, without code blocks.
func paragraphsOf(name string, content []byte) (all []text) {
	code, apart := false, true
	n := 0
	for line := range strings.Lines(string(content)) {
		n++
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			code, apart = !code, true
		case code || strings.TrimSpace(line) == "":
			apart = true
		case apart:
			all, apart = append(all, text{name, n, line}), false
		default:
			all[len(all)-1].text += "\n" + line
		}
	}
	return all
}
