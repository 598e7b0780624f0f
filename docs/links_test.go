package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// everyDocument reads all of the repository, by their paths from its root.
func everyDocument(t *testing.T) map[string]*Document {
	t.Helper()
	all := map[string]*Document{}
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "dist", "node_modules"}, entry.Name()):
			return filepath.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		d, err := Read(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel("..", path)
		all[filepath.ToSlash(name)] = d
		return err
	}))
	require.Greater(t, len(all), 10)
	return all
}

// Nothing is fetched: what is elsewhere is only looked at.
func TestLinksLeadSomewhere(t *testing.T) {
	all := everyDocument(t)
	count := 0
	for name, d := range all {
		for _, l := range d.Links {
			count++
			if err := follow(all, name, l.Target); err != nil {
				t.Errorf("%s:%d: %s: %s", name, l.Line, l.Target, err)
			}
		}
	}
	require.Greater(t, count, 50)
}

// follow returns an error if the target of a link does not exist.
func follow(all map[string]*Document, from, target string) error {
	to, err := url.Parse(target)
	switch {
	case err != nil:
		return err
	case to.Scheme == "https" && strings.Contains(to.Hostname(), "."):
		return nil
	case to.IsAbs():
		return errors.New("use https, and a host")
	case to.Host != "" || strings.HasPrefix(to.Path, "/"):
		return errors.New("use a path from where the document is")
	}
	path := from
	if to.Path != "" {
		path = filepath.ToSlash(filepath.Join(filepath.Dir(from), filepath.FromSlash(to.Path)))
	}
	if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(path))); err != nil || strings.HasPrefix(path, "../") {
		return errors.New("there is no such file in the repository")
	}
	if to.Fragment == "" {
		return nil
	}
	if all[path] == nil || !slices.ContainsFunc(all[path].Sections, func(s Section) bool { return s.Anchor == to.Fragment }) {
		return fmt.Errorf("there is no heading %s in %s", to.Fragment, path)
	}
	return nil
}

func TestFollow(t *testing.T) {
	all := everyDocument(t)
	for name, tc := range map[string]struct{ target, fault string }{
		"a file beside":                {"policies.md", ""},
		"a heading there":              {"policies.md#selections-of-consumers", ""},
		"a heading here":               {"#remote-ipam", ""},
		"a directory":                  {"../deploy", ""},
		"elsewhere":                    {"https://liqo.io/docs", ""},
		"a file that is not there":     {"polices.md", "no such file"},
		"a heading that is not there":  {"policies.md#weights", "no heading weights in docs/policies.md"},
		"a heading that is not here":   {"#weights", "no heading weights in docs/broker.md"},
		"a heading of what has none":   {"../Makefile#test", "no heading"},
		"outside of the repository":    {"../../x.md", "no such file"},
		"from the root of the machine": {"/docs/policies.md", "use a path"},
		"without encryption":           {"http://liqo.io", "use https"},
		"without a host":               {"https:docs", "use https"},
		"another scheme":               {"ftp://liqo.io/x", "use https"},
	} {
		t.Run(name, func(t *testing.T) {
			err := follow(all, "docs/broker.md", tc.target)
			if tc.fault == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.fault)
		})
	}
}
