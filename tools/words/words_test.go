package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheListCanBeRead(t *testing.T) {
	rules, err := parse(list)
	require.NoError(t, err)
	assert.NotEmpty(t, rules)
	for _, wrong := range []string{"1\t2\tonly three", "a\t1\tx\ty", "1\tb\tx\ty", "1\t1\t(\ty"} {
		_, err := parse(wrong)
		assert.ErrorContains(t, err, "words.txt", "%q", wrong)
	}
}

func TestOnlyCommentsOfGoFilesAreRead(t *testing.T) {
	got := commentsOf("a.go", []byte("package a // one\n\nvar s = \"// none\"\n/* two\nthree */\n"))
	assert.Equal(t, []text{{"a.go", 1, "// one"}, {"a.go", 4, "/* two"}, {"a.go", 5, "three */"}}, got)
}

func TestCodeBlocksOfDocumentsAreNotRead(t *testing.T) {
	got := linesOf("a.md", []byte("one\n```sh\nnone\n```\ntwo\n"))
	assert.Equal(t, []text{{"a.md", 1, "one"}, {"a.md", 5, "two"}}, got)
}

func TestPlacesArePrintedAboveTheCeiling(t *testing.T) {
	in := []text{{"a.go", 3, "// in vain, In vain"}, {"b.go", 7, "// in time"}}
	r := rule{wording: regexp.MustCompile(`(?i)in vain`), instead: "failed"}
	var out strings.Builder
	assert.True(t, check(&out, r, "comments", 1, in))
	assert.Contains(t, out.String(), "a.go:3: // in vain, In vain\n")
	assert.Contains(t, out.String(), "occurs 2 times in comments, at most 1: write failed")
	assert.NotContains(t, out.String(), "b.go")
	out.Reset()
	assert.False(t, check(&out, r, "comments", 2, in))
	assert.Empty(t, out.String())
	assert.False(t, check(&out, r, "comments", 3, in))
	assert.Contains(t, out.String(), "can be lowered from 3")
}
