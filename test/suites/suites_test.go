package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The tables of the document must match the last results. A failure has rewritten them.
func TestTheDocumentHasTheLastResults(t *testing.T) {
	rows, err := readResults("results.json")
	require.NoError(t, err)
	changed, err := writeTables("../../docs/compatibility.md", rows)
	require.NoError(t, err)
	require.False(t, changed, "docs/compatibility.md had other tables, and has these now")
	require.Empty(t, faults(rows, notes))
}

func TestFaultsAreFound(t *testing.T) {
	one := []note{{"unoffload", "pod", []string{broker}, "because"}}
	for name, c := range map[string]struct {
		results map[string]string
		notes   []note
		faults  int
	}{
		"all pass":                                   {map[string]string{stock: passed, dropIn: passed}, nil, 0},
		"only the drop-in fails":                     {map[string]string{stock: passed, dropIn: failed}, nil, 2},
		"the drop-in was not run":                    {map[string]string{stock: passed}, nil, 1},
		"it fails for a noted reason":                {map[string]string{broker: failed}, one, 0},
		"it passes although a reason is noted":       {map[string]string{broker: passed}, one, 1},
		"the reason is for no test that was run":     {map[string]string{chain: passed}, one, 1},
		"it is skipped on a side that has no reason": {map[string]string{broker: failed, chain: skipped}, one, 1},
	} {
		t.Run(name, func(t *testing.T) {
			found := faults([]row{{Package: "unoffload", Test: "a pod", Results: c.results}}, c.notes)
			require.Len(t, found, c.faults, "%q", found)
		})
	}
}

func TestResultsAreReplaced(t *testing.T) {
	rows := merge(nil, "unoffload", stock, []outcome{{Test: "a", Result: passed}, {Test: "b", Result: failed}})
	rows = merge(rows, "clusterlabels", stock, []outcome{{Test: "a", Result: passed}})
	rows = merge(rows, "unoffload", dropIn, []outcome{{Test: "a", Result: passed}})
	rows = merge(rows, "unoffload", stock, []outcome{{Test: "a", Result: skipped}})
	require.Equal(t, []row{
		{Package: "clusterlabels", Test: "a", Results: map[string]string{stock: passed}},
		{Package: "unoffload", Test: "a", Results: map[string]string{stock: skipped, dropIn: passed}},
	}, rows)
}

func TestTheSummaryCounts(t *testing.T) {
	require.Equal(t, `| suite | stock | drop-in | chain | broker |
|---|---|---|---|---|
| liqo | 1 of 2 | 1 of 1 | – | – |
| virtual-kubelet | – | – | – | 0 of 1 |
| kubernetes | – | – | – | – |
`, summary([]row{
		{Package: "unoffload", Test: "a", Results: map[string]string{stock: passed, dropIn: passed}},
		{Package: "reflection", Test: "b", Results: map[string]string{stock: failed}},
		{Package: kubeletSuite, Test: "c", Results: map[string]string{broker: skipped}},
	}))
}

func TestReportsOfGinkgoAreRead(t *testing.T) {
	outcomes, err := readReport([]byte(`[{"SpecReports": [
		{"LeafNodeType": "BeforeSuite", "State": "passed"},
		{"LeafNodeType": "It", "ContainerHierarchyTexts": ["Liqo E2E", "Offloading  policies"], "LeafNodeText": "is ready", "State": "passed"},
		{"LeafNodeType": "It", "ContainerHierarchyTexts": ["Liqo E2E"], "LeafNodeText": "is gone", "State": "timedout",
			"Failure": {"Message": "Timed out"}},
		{"LeafNodeType": "AfterSuite", "State": "failed", "Failure": {"Message": "left"}}
	]}]`))
	require.NoError(t, err)
	require.Equal(t, []outcome{
		{Test: "Offloading policies / is ready", Result: passed},
		{Test: "is gone", Result: failed, Why: "Timed out"},
		{Test: "AfterSuite", Result: failed, Why: "left"},
	}, outcomes)
}

func TestEventsOfGoAreRead(t *testing.T) {
	outcomes, err := readEvents([]byte(`{"Action":"run","Test":"TestVirtualKubelet/TestGetPods"}
{"Action":"output","Test":"TestVirtualKubelet/TestGetPods","Output":"    basic.go:46: timed out\n"}
{"Action":"output","Test":"TestVirtualKubelet/TestGetPods","Output":"--- FAIL: TestGetPods\n"}
{"Action":"fail","Test":"TestVirtualKubelet/TestGetPods"}
{"Action":"pass","Test":"TestVirtualKubelet/TestOther"}
{"Action":"fail","Test":"TestVirtualKubelet"}
no event`))
	require.NoError(t, err)
	require.Equal(t, []outcome{{Test: "TestGetPods", Result: failed, Why: "timed out"}, {Test: "TestOther", Result: passed}}, outcomes)
}
