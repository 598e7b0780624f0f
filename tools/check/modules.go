package main

import (
	"path"
	"slices"
	"strings"
)

// modules are the directories of the modules of the repository.
func modules() []string {
	return []string{".", "kubelet-v0", "test", "test/interop", "test/observability", "tools"}
}

// suite is a set of unit tests.
type suite struct {
	module   string
	packages []string
	// reads are directories outside of the module that the tests read: Go does not notice changes of files there.
	reads []string
}

func suites() []suite {
	return []suite{
		{".", []string{"./..."}, nil},
		{"kubelet-v0", []string{"./..."}, nil},
		{"test", []string{"./audit", "./chaos", "./collector", "./sandbox", "./sandbox/internal/..."}, nil},
		{"test", []string{"./deploy/...", "./exposition/...", "./suites"}, []string{"deploy", "docs"}},
		{"test", []string{"./histories/mutants"}, []string{"pkg"}},
		{"test/interop", []string{"./..."}, []string{"pkg/ipam", "test/ipampeer"}},
		{"test/observability", []string{"./..."}, []string{"deploy", "docs", "test/exposition"}},
		{"tools", []string{"./..."}, []string{"Dockerfile"}},
	}
}

// unseen reports whether the suite reads one of the files without Go's knowledge.
func (s suite) unseen(files []string) bool {
	return slices.ContainsFunc(files, func(file string) bool {
		return slices.ContainsFunc(s.reads, func(read string) bool { return file == read || strings.HasPrefix(file, read+"/") })
	})
}

// moduleOf returns the module that a file belongs to.
func moduleOf(file string) string {
	module := "."
	for _, m := range modules() {
		if strings.HasPrefix(file, m+"/") && len(m) > len(module) {
			module = m
		}
	}
	return module
}

// packagesToLint returns the packages of a module that have changed, as arguments of golangci-lint: all packages if the
// module's dependencies or the linters' configuration have changed, and no deleted packages.
func packagesToLint(module string, files []string, exists func(string) bool) []string {
	var packages []string
	for _, file := range files {
		switch name := path.Base(file); {
		case file == ".golangci.yml":
			return []string{"./..."}
		case moduleOf(file) != module:
		case name == "go.mod":
			return []string{"./..."}
		case strings.HasSuffix(name, ".go") && !strings.Contains("/"+file, "/testdata/") && exists(file):
			packages = append(packages, "./"+strings.TrimPrefix(strings.TrimPrefix(path.Dir(file), module), "/"))
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}
