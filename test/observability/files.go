package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The files, below the root of the repository.
const (
	rulesFile     = "deploy/observability/rules.yaml"
	dashboardFile = "deploy/observability/dashboard.json"
	configMapFile = "deploy/observability/dashboard-configmap.yaml"
	documentFile  = "docs/metrics.md"
	alertsFile    = "docs/alerts.md"
	usesFile      = "test/exposition/uses.json"
)

// repository is the path of the repository's root. This module is a part of the repository.
type repository string

func (r repository) read(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(r), name))
}

// rule is a rule of a PrometheusRule.
type rule struct {
	Record      string            `yaml:"record,omitempty"`
	Alert       string            `yaml:"alert,omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

func (r *rule) name() string { return r.Record + r.Alert }

// ruleFile is a rule file of Prometheus, and the spec of a PrometheusRule.
type ruleFile struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	} `yaml:"groups"`
}

func (f *ruleFile) all() []rule {
	var all []rule
	for _, group := range f.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

func (r repository) rules() (ruleFile, error) {
	var object struct {
		Spec ruleFile `yaml:"spec"`
	}
	text, err := r.read(rulesFile)
	if err != nil {
		return ruleFile{}, err
	}
	if err := yaml.Unmarshal(text, &object); err != nil {
		return ruleFile{}, fmt.Errorf("%s: %w", rulesFile, err)
	}
	return object.Spec, nil
}

// dashboard is the part of Grafana's model that is used here.
type dashboard struct {
	UID         string  `json:"uid"`
	Panels      []panel `json:"panels"`
	Annotations struct {
		List []struct {
			Name string `json:"name"`
			Expr string `json:"expr"`
		} `json:"list"`
	} `json:"annotations"`
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Type  string `json:"type"`
			Query any    `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct{ H, W, X, Y int }
	Targets []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

func (r repository) dashboard() (dashboard, error) {
	var d dashboard
	text, err := r.read(dashboardFile)
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("%s: %w", dashboardFile, err)
	}
	return d, nil
}

// plain returns an expression of a dashboard without Grafana's variables.
func plain(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$provider", ".*").Replace(expr)
}

// query is a PromQL expression, and where it was found.
type query struct{ where, expr string }

// legendLabel finds the labels in a legend.
var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// labelValues matches Grafana's function for the values of a variable, which has a selector and a label as arguments.
var labelValues = regexp.MustCompile(`^label_values\((.+), *([a-z_]+)\)$`)

// queries returns all expressions of the dashboard.
func (d *dashboard) queries() ([]query, error) {
	var all []query
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, query{"dashboard, panel " + p.Title, plain(target.Expr)})
		}
	}
	for _, a := range d.Annotations.List {
		all = append(all, query{"dashboard, annotation " + a.Name, plain(a.Expr)})
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		fields, _ := v.Query.(map[string]any)
		text, _ := fields["query"].(string)
		found := labelValues.FindStringSubmatch(text)
		if found == nil {
			return nil, fmt.Errorf("%s: variable %s: %q is not label_values(metric, label)", dashboardFile, v.Name, text)
		}
		all = append(all, query{"dashboard, variable " + v.Name, fmt.Sprintf("group by (%s) (%s)", found[2], found[1])})
	}
	return all, nil
}

func (f *ruleFile) queries() []query {
	var all []query
	for _, r := range f.all() {
		all = append(all, query{"rule " + r.name(), r.Expr})
	}
	return all
}

// example finds the text in backquotes in the last cell of a row.
var example = regexp.MustCompile("^\\| `([a-z_:]+)` \\|.*\\|[^|]*?`([^`]+)` \\|$")

// examples returns the queries of docs/metrics.md.
func (r repository) examples() ([]query, error) {
	text, err := r.read(documentFile)
	if err != nil {
		return nil, err
	}
	var all []query
	for line := range strings.Lines(string(text)) {
		if found := example.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
			all = append(all, query{documentFile + ", " + found[1], found[2]})
		}
	}
	return all, nil
}
