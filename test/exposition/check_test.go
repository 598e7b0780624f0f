package exposition

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rules, dashboard and examples ask for what is documented, which is what is registered (documented_test.go).
func TestOnlyWhatExistsIsAskedFor(t *testing.T) {
	uses, err := LoadUses()
	require.NoError(t, err)
	d := document(t)
	for _, asked := range []Asked{uses.Asked, uses.Examples} {
		require.NotEmpty(t, asked)
		for job, metrics := range asked {
			known := map[string]Metric{}
			for name, metric := range d.Libraries {
				known[name] = metric
			}
			for name, metric := range d.Components[job] {
				known[name] = metric
			}
			for _, fault := range missing(job, metrics, known, nil) {
				require.NoError(t, fault)
			}
		}
	}
}

// libraryMetrics are those that RegisterMetrics does not register.
func libraryMetrics(t *testing.T) []string {
	t.Helper()
	var names []string
	for name := range document(t).Libraries {
		names = append(names, name)
	}
	return names
}

func TestARegistryPassesTheCheckOfScrapes(t *testing.T) {
	scrapes := map[string][]string{}
	for job := range Registrations() {
		text, _ := registered(t, job)
		scrapes[job] = []string{text}
	}
	require.NoError(t, Check(scrapes, libraryMetrics(t)...))
}

func TestWhatAScrapeLacksIsFound(t *testing.T) {
	text, _ := registered(t, Broker)
	quiet := libraryMetrics(t)
	without := func(metric string) string {
		var kept strings.Builder
		for line := range strings.Lines(text) {
			if !strings.Contains(line, metric) {
				kept.WriteString(line)
			}
		}
		return kept.String()
	}
	require.ErrorContains(t, Check(map[string][]string{Broker: {without("liqo_broker_moves_total")}}, quiet...),
		"liqo-broker: liqo_broker_moves_total is asked for and not shown")
	require.NoError(t, Check(map[string][]string{Broker: {without("liqo_broker_moves_total")}}, append(quiet, "liqo_broker_moves_total")...))
	require.NoError(t, Check(map[string][]string{Broker: {without("liqo_broker_moves_total"), text}}, quiet...), "the other replica leads")
	renamed := strings.ReplaceAll(text, `liqo_broker_moves_total{reason=`, `liqo_broker_moves_total{why=`)
	require.NotEqual(t, text, renamed)
	require.ErrorContains(t, Check(map[string][]string{Broker: {renamed}}, quiet...), `label reason of liqo_broker_moves_total is asked for; it has ["why"]`)
	require.ErrorContains(t, Check(map[string][]string{Broker: {text}}), "leader_election_master_status", "nothing is quiet")
	require.ErrorContains(t, Check(map[string][]string{Broker: {"no metrics\n"}}), "liqo-broker: exposition")
}
