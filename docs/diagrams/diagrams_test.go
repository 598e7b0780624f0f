package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThePicturesAreThoseOfTheTexts(t *testing.T) {
	sources, err := filepath.Glob("*.txt")
	require.NoError(t, err)
	pictures, err := filepath.Glob("*.svg")
	require.NoError(t, err)
	require.Len(t, pictures, len(sources), "one of each")
	for _, source := range sources {
		want, err := draw(source)
		require.NoError(t, err)
		got, err := os.ReadFile(pictureOf(source))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "run go run ./docs/diagrams")
		readable(t, got)
	}
}

// readable fails unless a picture is XML.
func readable(t *testing.T, picture []byte) {
	t.Helper()
	for decoder := xml.NewDecoder(strings.NewReader(string(picture))); ; {
		if _, err := decoder.Token(); err != nil {
			require.True(t, errors.Is(err, io.EOF), "%v", err)
			return
		}
	}
}

func TestArrowsMeetTheSidesThatFaceEachOther(t *testing.T) {
	d, err := parse("size 400 400 <all> & more\nbox a 0 0 100 100 A\nbox right 200 50 100 100 B\nbox below 0 300 50 50 C\n" +
		"arrow a right one|two\ndash right a\narrow a below\narrow below a\narrow below right\n")
	require.NoError(t, err)
	picture := d.svg()
	readable(t, picture)
	for _, part := range []string{
		`aria-label="&lt;all&gt; &amp; more"`, `"M100 75 200 75"`, `class="line dash" d="M200 75 100 75"`, `"M25 100 25 300"`,
		`"M25 300 25 100"`, `"M50 325 200 100"`, `y="71">one<`, `y="87">two<`,
	} {
		require.Contains(t, string(picture), part)
	}
}

func TestFaultsNameTheLine(t *testing.T) {
	for name, tc := range map[string]struct{ text, fault string }{
		"no size":               {"# nothing", "there is no size"},
		"another thing":         {"size 9 9\ncircle a", `line 2: "circle" is none of`},
		"a number that is none": {"size 9 x", `line 1: "x" is no number`},
		"too few numbers":       {"size 9 9\n\nbox a 1 2 3", "line 3: 4 numbers are needed"},
		"out of the picture":    {"size 9 9\nbox a 1 1 9 1 A", "line 2: a is not within the size"},
		"a name twice":          {"size 9 9\nbox a 1 1 1 1 A\nsoft a 2 2 1 1 B", "line 3: there are two shapes called a"},
		"an arrow to nothing":   {"size 9 9\nbox a 1 1 1 1 A\narrow a b", "line 3: a or b is no shape above"},
		"an arrow from nowhere": {"size 9 9\ndash a", "line 2: an arrow needs two shapes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(tc.text)
			require.ErrorContains(t, err, tc.fault)
		})
	}
}

func TestRunDrawsAll(t *testing.T) {
	directory := t.TempDir()
	require.ErrorContains(t, run(directory), "has no *.txt")
	require.NoError(t, os.WriteFile(filepath.Join(directory, "x.txt"), []byte("size 9 9 X"), 0o600))
	require.NoError(t, run(directory))
	got, err := os.ReadFile(filepath.Join(directory, "x.svg"))
	require.NoError(t, err)
	readable(t, got)
	require.NoError(t, os.WriteFile(filepath.Join(directory, "y.txt"), []byte("size"), 0o600))
	require.ErrorContains(t, run(directory), "y.txt: line 1: 2 numbers are needed")
}
