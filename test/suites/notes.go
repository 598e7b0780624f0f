package main

import (
	"slices"
	"strings"
)

// note is why tests do not pass on some sides.
type note struct {
	pkg string
	// test is a part of the test's name; empty for all of the package.
	test  string
	sides []string
	why   string
}

func (n note) covers(r row, side string) bool {
	return n.pkg == r.Package && strings.Contains(r.Test, n.test) && slices.Contains(n.sides, side)
}

var notes = []note{}
