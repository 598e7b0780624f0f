// Command diagrams draws the pictures of the documents: every *.txt of a directory becomes an SVG beside it. Run it as
// go run ./docs/diagrams after a text has changed; a test fails while a picture is not that of its text.
//
// A text has one thing on each line. Lengths are in pixels, texts are the rest of the line, | begins a new one:
//
//	size  WIDTH HEIGHT TEXT              the picture, and what those read who cannot see it
//	frame NAME X Y WIDTH HEIGHT TEXT     a cluster
//	box   NAME X Y WIDTH HEIGHT TEXT     something in it
//	soft  NAME X Y WIDTH HEIGHT TEXT     something that is only shown there, or that need not be
//	arrow FROM TO TEXT                   from a box to another, straight
//	dash  FROM TO TEXT                   the same, for what is no command: data, or what may happen
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := run("docs/diagrams"); err != nil {
		fmt.Fprintln(os.Stderr, "diagrams:", err)
		os.Exit(1)
	}
}

func run(directory string) error {
	sources, err := filepath.Glob(filepath.Join(directory, "*.txt"))
	if err != nil {
		return err
	}
	if len(sources) == 0 {
		return fmt.Errorf("%s has no *.txt", directory)
	}
	for _, source := range sources {
		picture, err := draw(source)
		if err != nil {
			return err
		}
		if err := os.WriteFile(pictureOf(source), picture, 0o644); err != nil { //nolint:gosec // It is for everybody.
			return err
		}
	}
	return nil
}

func pictureOf(source string) string { return strings.TrimSuffix(source, ".txt") + ".svg" }

func draw(source string) ([]byte, error) {
	text, err := os.ReadFile(source)
	if err != nil {
		return nil, err
	}
	d, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return d.svg(), nil
}
