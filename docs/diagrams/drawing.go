package main

import (
	"fmt"
	"strconv"
	"strings"
)

// drawing is what a text describes.
type drawing struct {
	width, height int
	title         string
	shapes        []shape
	arrows        []arrow
}

// shape is a frame, a box or a soft box.
type shape struct {
	kind, name          string
	x, y, width, height int
	lines               []string
}

// arrow joins two shapes.
type arrow struct {
	from, to shape
	dashed   bool
	lines    []string
}

// parse reads a drawing; the error names the line.
func parse(text string) (*drawing, error) {
	d, known := &drawing{}, map[string]shape{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := d.parseLine(line, known); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if d.width == 0 {
		return nil, fmt.Errorf("there is no size")
	}
	return d, nil
}

func (d *drawing) parseLine(line string, known map[string]shape) error {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "size":
		numbers, text, err := numbersOf(rest, 2)
		if err != nil {
			return err
		}
		d.width, d.height, d.title = numbers[0], numbers[1], text
	case "frame", "box", "soft":
		name, rest, _ := strings.Cut(strings.TrimSpace(rest), " ")
		numbers, text, err := numbersOf(rest, 4)
		if err != nil {
			return err
		}
		if _, exists := known[name]; exists {
			return fmt.Errorf("there are two shapes called %s", name)
		}
		s := shape{
			kind: kind, name: name, x: numbers[0], y: numbers[1], width: numbers[2], height: numbers[3], lines: linesOf(text),
		}
		if s.x < 0 || s.y < 0 || s.x+s.width > d.width || s.y+s.height > d.height {
			return fmt.Errorf("%s is not within the size", name)
		}
		known[name] = s
		d.shapes = append(d.shapes, s)
	case "arrow", "dash":
		words := strings.Fields(rest)
		if len(words) < 2 {
			return fmt.Errorf("an arrow needs two shapes")
		}
		from, begins := known[words[0]]
		to, ends := known[words[1]]
		if !begins || !ends {
			return fmt.Errorf("%s or %s is no shape above", words[0], words[1])
		}
		d.arrows = append(d.arrows, arrow{from: from, to: to, dashed: kind == "dash", lines: linesOf(strings.Join(words[2:], " "))})
	default:
		return fmt.Errorf("%q is none of size, frame, box, soft, arrow, dash", kind)
	}
	return nil
}

// numbersOf reads the first words as numbers, and returns the rest.
func numbersOf(text string, count int) ([]int, string, error) {
	words := strings.Fields(text)
	if len(words) < count {
		return nil, "", fmt.Errorf("%d numbers are needed", count)
	}
	numbers := make([]int, count)
	for i := range numbers {
		var err error
		if numbers[i], err = strconv.Atoi(words[i]); err != nil {
			return nil, "", fmt.Errorf("%q is no number", words[i])
		}
	}
	return numbers, strings.Join(words[count:], " "), nil
}

func linesOf(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "|")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}
