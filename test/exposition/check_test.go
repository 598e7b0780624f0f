package exposition

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rules, dashboard and examples use only documented metrics. document_test.go compares these with the registered ones.
func TestOnlyWhatExistsIsAskedFor(t *testing.T) {
	uses, err := loadUses()
	require.NoError(t, err)
	d := documented(t)
	for _, of := range []asked{uses.Asked, uses.Examples} {
		require.NotEmpty(t, of)
		for job, metrics := range of {
			known := map[string]metric{}
			for name, metric := range d.libraries {
				known[name] = metric
			}
			for name, metric := range d.components[job] {
				known[name] = metric
			}
			for _, fault := range missing(job, metrics, known, nil) {
				require.NoError(t, fault)
			}
		}
	}
}

// libraryMetrics returns the metrics that RegisterMetrics does not register.
func libraryMetrics(t *testing.T) []string {
	t.Helper()
	var names []string
	for name := range documented(t).libraries {
		names = append(names, name)
	}
	return names
}

func TestARegistryPassesTheCheckOfScrapes(t *testing.T) {
	scrapes := map[string][]string{}
	for job := range registrations() {
		text, _ := registered(t, job)
		scrapes[job] = []string{text}
	}
	require.NoError(t, Check(documentFile, scrapes, libraryMetrics(t)...))
}

func TestScrapesThatAreNotAsTheyShouldBe(t *testing.T) {
	all, _ := registered(t, Broker)
	var without strings.Builder
	for line := range strings.Lines(all) {
		if !strings.Contains(line, "liqo_broker_moves_total") {
			without.WriteString(line)
		}
	}
	renamed := strings.ReplaceAll(all, `liqo_broker_moves_total{reason=`, `liqo_broker_moves_total{why=`)
	require.NotEqual(t, all, renamed)
	libraries := libraryMetrics(t)
	for name, tc := range map[string]struct {
		scrapes []string
		quiet   []string
		faults  []string
	}{
		"everything is there":     {scrapes: []string{all}, quiet: libraries},
		"the other replica leads": {scrapes: []string{without.String(), all}, quiet: libraries},
		"a metric is missing": {
			scrapes: []string{without.String()}, quiet: libraries,
			faults: []string{"liqo-broker: liqo_broker_moves_total is asked for and not shown"},
		},
		"the metric that is missing is quiet": {
			scrapes: []string{without.String()}, quiet: append([]string{"liqo_broker_moves_total"}, libraries...),
		},
		"a label has another name": {scrapes: []string{renamed}, quiet: libraries, faults: []string{
			`the labels of liqo_broker_moves_total are ["why"], not ["reason"]`,
			`label reason of liqo_broker_moves_total is asked for; it has ["why"]`,
		}},
		"a metric is not documented": {
			scrapes: []string{all + "# HELP made_up_total Whatever.\n# TYPE made_up_total counter\nmade_up_total 1\n"}, quiet: libraries,
			faults: []string{"liqo-broker: counter made_up_total is not documented: Whatever."},
		},
		"nothing is quiet": {
			scrapes: []string{all}, faults: []string{"leader_election_master_status is asked for and not shown"},
		},
		"there are no metrics": {scrapes: []string{"no metrics\n"}, faults: []string{"liqo-broker: exposition"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(documentFile, map[string][]string{Broker: tc.scrapes}, tc.quiet...)
			if len(tc.faults) == 0 {
				require.NoError(t, err)
			}
			for _, fault := range tc.faults {
				require.ErrorContains(t, err, fault)
			}
		})
	}
}
