package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// root is the root of the repository, relative to the tests' directory.
const root = repository("../..")

// firing is an alert that fires.
type firing struct{ name, summary, description string }

// evaluated is a Prometheus that has evaluated our rules.
type evaluated struct {
	t       *testing.T
	storage storage.Storage
	groups  []*rules.Group
	at      time.Time
}

// evaluate loads series, in Prometheus' notation for tests with one value a minute, and evaluates the rules every
// minute between two times of the series.
func evaluate(t *testing.T, series string, from, until time.Duration) *evaluated {
	t.Helper()
	e := &evaluated{t: t, storage: promqltest.LoadedStorage(t, "load 1m\n"+series)}
	t.Cleanup(func() { require.NoError(t, e.storage.Close()) })
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, 1_000_000)
	manager := rules.NewManager(&rules.ManagerOptions{
		Context: t.Context(), Logger: promslog.NewNopLogger(), Appendable: e.storage, Queryable: e.storage,
		QueryFunc:  rules.EngineQueryFunc(engine, e.storage),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
	})
	loaded, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, plainRules(t))
	require.Empty(t, errs)
	// In the order of the file: recorded series come first.
	file, err := root.rules()
	require.NoError(t, err)
	for _, group := range file.Groups {
		for _, key := range slices.Sorted(maps.Keys(loaded)) {
			if loaded[key].Name() == group.Name {
				e.groups = append(e.groups, loaded[key])
			}
		}
	}
	require.Len(t, e.groups, len(loaded))
	for at := from; at <= until; at += time.Minute {
		e.at = time.Unix(0, 0).UTC().Add(at)
		for _, group := range e.groups {
			group.Eval(t.Context(), e.at)
		}
	}
	for _, group := range e.groups {
		for _, rule := range group.Rules() {
			require.NoError(t, rule.LastError(), rule.Name())
		}
	}
	return e
}

// plainRules returns the path of the rules for Prometheus, which the operator would create from the PrometheusRule.
func plainRules(t *testing.T) string {
	t.Helper()
	file, err := root.rules()
	require.NoError(t, err)
	text, err := yaml.Marshal(file)
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(name, text, 0o600))
	return name
}

// firing returns the alerts that fire, by name and summary.
func (e *evaluated) firing() []firing {
	var all []firing
	for _, group := range e.groups {
		for _, rule := range group.AlertingRules() {
			for _, alert := range rule.ActiveAlerts() {
				if alert.State == rules.StateFiring {
					all = append(all, firing{rule.Name(), alert.Annotations.Get("summary"), alert.Annotations.Get("description")})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b firing) int { return slices.Compare([]string{a.name, a.summary}, []string{b.name, b.summary}) })
	return all
}

// recorded returns the values of a recorded series, by its labels without the job.
func (e *evaluated) recorded(name string) map[string]float64 {
	e.t.Helper()
	engine := promqltest.NewTestEngine(e.t, false, 5*time.Minute, 1_000_000)
	query, err := engine.NewInstantQuery(e.t.Context(), e.storage, nil, name, e.at)
	require.NoError(e.t, err)
	defer query.Close()
	result := query.Exec(e.t.Context())
	require.NoError(e.t, result.Err)
	vector, err := result.Vector()
	require.NoError(e.t, err)
	values := map[string]float64{}
	for _, sample := range vector {
		values[labels.NewBuilder(sample.Metric).Del(model.MetricNameLabel, "job", "namespace").Labels().String()] = sample.F
	}
	return values
}
