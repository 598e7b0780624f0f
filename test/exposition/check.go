package exposition

import (
	_ "embed" // uses.json
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// usesJSON is written by test/observability: which metrics and labels are asked for, by job.
//
//go:embed uses.json
var usesJSON []byte

// Asked are the labels that are asked for, by job and metric.
type Asked map[string]map[string][]string

// Uses are what somebody asks of the metrics.
type Uses struct {
	// Asked is what the rules and the dashboard ask for, Examples what docs/metrics.md shows.
	Asked    Asked `json:"asked"`
	Examples Asked `json:"examples"`
}

// LoadUses reads what test/observability has found.
func LoadUses() (Uses, error) {
	var uses Uses
	if err := json.Unmarshal(usesJSON, &uses); err != nil {
		return uses, fmt.Errorf("uses.json: %w", err)
	}
	return uses, nil
}

// Check says which metrics and labels the rules and the dashboard ask for that scrapes do not have. A scrape is the text of
// /metrics, by job (Broker, VirtualKubelet, Catalog); of a job that has several processes their texts one after another,
// each as one element. Jobs without a scrape are not looked at. Metrics in quiet may be missing altogether: they are
// there only after something that has not happened.
func Check(scrapes map[string][]string, quiet ...string) error {
	uses, err := LoadUses()
	if err != nil {
		return err
	}
	var faults []error
	for _, job := range slices.Sorted(maps.Keys(scrapes)) {
		shown := map[string]Metric{}
		for _, scrape := range scrapes[job] {
			metrics, err := Scraped(strings.NewReader(scrape))
			if err != nil {
				return fmt.Errorf("%s: %w", job, err)
			}
			for name, metric := range metrics {
				// What a replica that stands by lacks, the leader has.
				metric.Labels = slices.Compact(slices.Sorted(slices.Values(slices.Concat(metric.Labels, shown[name].Labels))))
				shown[name] = metric
			}
		}
		faults = append(faults, missing(job, uses.Asked[job], shown, quiet)...)
	}
	return errors.Join(faults...)
}

// missing are the metrics and labels that are asked for and not shown.
func missing(job string, asked map[string][]string, shown map[string]Metric, quiet []string) []error {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		metric, there := shown[name]
		if !there {
			if !slices.Contains(quiet, name) {
				faults = append(faults, fmt.Errorf("%s: %s is asked for and not shown", job, name))
			}
			continue
		}
		for _, label := range asked[name] {
			if !slices.Contains(metric.Labels, label) {
				faults = append(faults, fmt.Errorf("%s: label %s of %s is asked for; it has %q", job, label, name, metric.Labels))
			}
		}
	}
	return faults
}
