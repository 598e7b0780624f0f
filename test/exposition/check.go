package exposition

import (
	_ "embed" // uses.json
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// usesJSON is written by test/observability.
//
//go:embed uses.json
var usesJSON []byte

// asked are the labels that queries use, by component and metric.
type asked map[string]map[string][]string

// uses are the metrics and labels that queries use.
type uses struct {
	// Asked is for the rules and the dashboard, Examples for docs/metrics.md.
	Asked    asked `json:"asked"`
	Examples asked `json:"examples"`
}

func loadUses() (uses, error) {
	var u uses
	if err := json.Unmarshal(usesJSON, &u); err != nil {
		return u, fmt.Errorf("uses.json: %w", err)
	}
	return u, nil
}

// Check compares scrapes with docs/metrics.md, whose path is document, and with the queries of the rules and the
// dashboard. scrapes has the texts of /metrics, one for each process, by component: Broker, VirtualKubelet, Catalog. A
// metric of any replica counts for its component. Components without scrapes are skipped. Metrics in quiet may be
// missing: they exist only after an event that has not happened. The error joins all faults.
func Check(document string, scrapes map[string][]string, quiet ...string) error {
	documented, err := readDocument(document)
	if err != nil {
		return err
	}
	uses, err := loadUses()
	if err != nil {
		return err
	}
	var faults []error
	for _, component := range slices.Sorted(maps.Keys(scrapes)) {
		shown, err := merged(scrapes[component])
		if err != nil {
			return fmt.Errorf("%s: %w", component, err)
		}
		faults = append(faults, documented.compare(component, shown, false)...)
		faults = append(faults, missing(component, uses.Asked[component], shown, quiet)...)
	}
	return errors.Join(faults...)
}

func readDocument(path string) (document, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return document{}, err
	}
	d, err := parseDocument(string(text))
	if err != nil {
		return d, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// merged returns the metrics of all processes of a component.
func merged(scrapes []string) (map[string]metric, error) {
	shown := map[string]metric{}
	for _, scrape := range scrapes {
		metrics, err := parseScrape(strings.NewReader(scrape))
		if err != nil {
			return nil, err
		}
		for name, m := range metrics {
			m.labels = slices.Compact(slices.Sorted(slices.Values(slices.Concat(m.labels, shown[name].labels))))
			shown[name] = m
		}
	}
	return shown, nil
}

// missing returns an error for each metric or label that queries use and the component does not show.
func missing(component string, asked map[string][]string, shown map[string]metric, quiet []string) []error {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		m, there := shown[name]
		if !there {
			if !slices.Contains(quiet, name) {
				faults = append(faults, fmt.Errorf("%s: %s is asked for and not shown", component, name))
			}
			continue
		}
		for _, label := range asked[name] {
			if !slices.Contains(m.labels, label) {
				faults = append(faults, fmt.Errorf("%s: label %s of %s is asked for; it has %q", component, label, name, m.labels))
			}
		}
	}
	return faults
}
