package exposition

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// document is the content of docs/metrics.md.
type document struct {
	// components has the metrics of each component, by name.
	components map[string]map[string]metric
	// libraries has the listed metrics of libraries, by name; families has the prefixes of all others.
	libraries map[string]metric
	families  []string
}

var (
	heading   = regexp.MustCompile(`^## (.+)$`)
	component = regexp.MustCompile("^Job `([a-z-]+)`")
	row       = regexp.MustCompile("^\\| `([a-zA-Z_:]+)` \\| (counter|gauge|histogram|summary) \\|([^|]*)\\|([^|]*)\\|")
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	family    = regexp.MustCompile("`([a-z_]+_)\\*`")
)

// ofLibraries is the heading above the metrics of libraries.
const ofLibraries = "From the libraries"

// parseDocument reads docs/metrics.md: a table of metrics in every section whose heading begins with "Job `…`", and a
// table of the metrics of libraries.
func parseDocument(text string) (document, error) {
	d := document{components: map[string]map[string]metric{}, libraries: map[string]metric{}}
	section, job := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if found := heading.FindStringSubmatch(line); found != nil {
			section, job = found[1], ""
		}
		if found := component.FindStringSubmatch(line); found != nil {
			job = found[1]
			d.components[job] = map[string]metric{}
		}
		if section == ofLibraries && !strings.HasPrefix(line, "|") {
			for _, found := range family.FindAllStringSubmatch(line, -1) {
				d.families = append(d.families, found[1])
			}
		}
		found := row.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		of := d.components[job]
		if section == ofLibraries {
			of = d.libraries
		}
		if of == nil {
			return d, fmt.Errorf("metric %s is in a section that does not say which job it is of", found[1])
		}
		if _, twice := of[found[1]]; twice {
			return d, fmt.Errorf("metric %s is there twice", found[1])
		}
		of[found[1]] = metric{name: found[1], kind: found[2], labels: spans(found[3]), help: strings.TrimSpace(found[4])}
	}
	return d, nil
}

func spans(cell string) []string {
	var out []string
	for _, found := range codeSpan.FindAllStringSubmatch(cell, -1) {
		out = append(out, found[1])
	}
	return slices.Sorted(slices.Values(out))
}

// compare returns the differences between the metrics of a component and the document. With complete, all documented
// metrics must exist with all their labels; a scrape lacks metrics without events.
func (d document) compare(component string, shown map[string]metric, complete bool) []error {
	var faults []error
	documented := d.components[component]
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		is, want := shown[name], documented[name]
		switch {
		case want.name == "":
			if !d.ofLibrary(name) {
				faults = append(faults, fmt.Errorf("%s: %s %s is not documented: %s", component, is.kind, name, is.help))
			}
		case is.kind != want.kind:
			faults = append(faults, fmt.Errorf("%s: %s is a %s, not a %s", component, name, is.kind, want.kind))
		case is.help != want.help:
			faults = append(faults, fmt.Errorf("%s: the help of %s is %q, not %q", component, name, is.help, want.help))
		case complete && !slices.Equal(is.labels, want.labels), !complete && !within(is.labels, want.labels):
			faults = append(faults, fmt.Errorf("%s: the labels of %s are %q, not %q", component, name, is.labels, want.labels))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if _, there := shown[name]; complete && !there {
			faults = append(faults, fmt.Errorf("%s: %s is documented and does not exist", component, name))
		}
	}
	return faults
}

func (d document) ofLibrary(name string) bool {
	_, named := d.libraries[name]
	return named || slices.ContainsFunc(d.families, func(family string) bool { return strings.HasPrefix(name, family) })
}

func within(some, all []string) bool {
	return !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(all, one) })
}
