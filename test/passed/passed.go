package passed

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Suite is one that may have passed before, with everything as it is.
type Suite struct {
	// path is of the file that is there once it has passed.
	path string
}

// Of returns the suite of that name, remembered in a directory, whose outcome depends on files and on all files in
// directories, but for tests and documents there, and on the version of Go.
func Of(directory, name string, paths ...string) (Suite, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, path := range paths {
		files, err := filesOf(path)
		if err != nil {
			return Suite{}, err
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return Suite{}, err
			}
			fmt.Fprintln(h, filepath.ToSlash(file), len(content))
			h.Write(content)
		}
	}
	return Suite{filepath.Join(directory, name+"-"+hex.EncodeToString(h.Sum(nil))[:16])}, nil
}

// filesOf are the file itself, or the files in a directory.
func filesOf(path string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if file != path && (strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, ".md")) {
			return nil
		}
		files = append(files, file)
		return nil
	})
	slices.Sort(files)
	return files, err
}

// Path is of the file that is there once the suite has passed.
func (s Suite) Path() string { return s.path }

// When returns when the suite passed, or the zero time if it did not yet.
func (s Suite) When() (time.Time, error) {
	info, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// Keep remembers that the suite has passed now.
func (s Suite) Keep() error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(s.path, nil, 0o600)
}
