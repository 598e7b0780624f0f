package exposition

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Document is what docs/metrics.md says.
type Document struct {
	// Components have the metrics of each component, by name.
	Components map[string]map[string]Metric
	// Libraries are those metrics of libraries that are named, by name; Families the beginnings of the names of the rest.
	Libraries map[string]Metric
	Families  []string
}

var (
	heading   = regexp.MustCompile(`^## (.+)$`)
	component = regexp.MustCompile("^Job `([a-z-]+)`")
	row       = regexp.MustCompile("^\\| `([a-zA-Z_:]+)` \\| (counter|gauge|histogram|summary) \\|([^|]*)\\|([^|]*)\\|")
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	family    = regexp.MustCompile("`([a-z_]+_)\\*`")
)

// libraries is the heading above what is not ours.
const libraries = "From the libraries"

// Documented reads docs/metrics.md: a table of metrics in every section that begins with "Job `…`", and one of those of
// libraries.
func Documented(text string) (Document, error) {
	d := Document{Components: map[string]map[string]Metric{}, Libraries: map[string]Metric{}}
	section, job := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if found := heading.FindStringSubmatch(line); found != nil {
			section, job = found[1], ""
		}
		if found := component.FindStringSubmatch(line); found != nil {
			job = found[1]
			d.Components[job] = map[string]Metric{}
		}
		if section == libraries && !strings.HasPrefix(line, "|") {
			for _, found := range family.FindAllStringSubmatch(line, -1) {
				d.Families = append(d.Families, found[1])
			}
		}
		found := row.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		of := d.Components[job]
		if section == libraries {
			of = d.Libraries
		}
		if of == nil {
			return d, fmt.Errorf("metric %s is in a section that does not say which job it is of", found[1])
		}
		if _, twice := of[found[1]]; twice {
			return d, fmt.Errorf("metric %s is there twice", found[1])
		}
		of[found[1]] = Metric{Name: found[1], Type: found[2], Labels: spans(found[3]), Help: strings.TrimSpace(found[4])}
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

// Compare says how what a component shows differs from what the document says of it. With complete, everything that is
// documented must be there with all of its labels; a scrape lacks what has not happened.
func (d Document) Compare(component string, shown map[string]Metric, complete bool) []error {
	var faults []error
	documented := d.Components[component]
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		is, says := shown[name], documented[name]
		switch {
		case says.Name == "":
			if !d.ofLibrary(name) {
				faults = append(faults, fmt.Errorf("%s: %s is not documented: %s", component, name, is))
			}
		case is.Type != says.Type:
			faults = append(faults, fmt.Errorf("%s: %s is a %s, not a %s", component, name, is.Type, says.Type))
		case is.Help != says.Help:
			faults = append(faults, fmt.Errorf("%s: the help of %s is %q, not %q", component, name, is.Help, says.Help))
		case complete && !slices.Equal(is.Labels, says.Labels), !complete && !within(is.Labels, says.Labels):
			faults = append(faults, fmt.Errorf("%s: the labels of %s are %q, not %q", component, name, is.Labels, says.Labels))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if _, there := shown[name]; complete && !there {
			faults = append(faults, fmt.Errorf("%s: %s is documented and does not exist", component, name))
		}
	}
	return faults
}

func (d Document) ofLibrary(name string) bool {
	_, named := d.Libraries[name]
	return named || slices.ContainsFunc(d.Families, func(family string) bool { return strings.HasPrefix(name, family) })
}

func within(some, all []string) bool {
	return !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(all, one) })
}
