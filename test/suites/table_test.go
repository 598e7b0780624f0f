package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tables of the documents are made from the last results; UPDATE=1 writes them.
func TestTheDocumentsHaveTheLastResults(t *testing.T) {
	rows, err := readResults("results.json")
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	compatibility := map[string]string{}
	for _, suite := range []string{suiteLiqo, suiteKubelet, suiteVersions} {
		compatibility[suite] = table(rows, suite)
	}
	requireTables(t, "../../docs/compatibility.md", compatibility)
	requireTables(t, "../../README.md", map[string]string{"tested with": testedWith(rows)})
}

// requireTables compares the tables of a document, each between a comment with its name and one with "end".
func requireTables(t *testing.T, path string, tables map[string]string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	written := string(text)
	for name, content := range tables {
		place := regexp.MustCompile(`(?s)(<!-- table: ` + name + ` -->\n).*?(<!-- end -->)`)
		require.Regexp(t, place, written, path)
		written = place.ReplaceAllStringFunc(written, func(found string) string {
			parts := place.FindStringSubmatch(found)
			return parts[1] + content + parts[2]
		})
	}
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(written), 0o600))
		return
	}
	require.Equal(t, string(text), written, "run UPDATE=1 go test ./suites")
}

// What passes with Liqo's virtual kubelet passes with ours in its place; what does not pass has a reason.
func TestEveryFailureHasAReason(t *testing.T) {
	rows, err := readResults("results.json")
	require.NoError(t, err)
	require.Empty(t, unexplained(rows))
	for _, n := range notes {
		used := false
		for _, r := range rows {
			for _, side := range n.sides {
				used = used || hasNote(r, side) && r.Results[side] != "" && r.Results[side] != resultPassed
			}
		}
		require.True(t, used, "no failure has the reason %q", n.why)
	}
}

func TestFailuresAreFound(t *testing.T) {
	passed := map[string]string{sideStock: resultPassed, sideDropIn: resultPassed}
	require.Empty(t, unexplained([]row{{Suite: suiteLiqo, Test: "a", Results: passed}}))
	failed := map[string]string{sideStock: resultPassed, sideDropIn: resultFailed}
	require.Len(t, unexplained([]row{{Suite: suiteLiqo, Test: "a", Results: failed}}), 2)
}

func TestResultsAreReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	first := []outcome{{Test: "a", Result: resultPassed}, {Test: "b", Result: resultFailed, Why: "because"}}
	require.NoError(t, keep(path, suiteLiqo, "unoffload", sideStock, first))
	require.NoError(t, keep(path, suiteLiqo, "reflection", sideStock, []outcome{{Test: "a", Result: resultPassed}}))
	require.NoError(t, keep(path, suiteLiqo, "unoffload", sideDropIn, []outcome{{Test: "a", Result: resultPassed}}))
	require.NoError(t, keep(path, suiteLiqo, "unoffload", sideStock, []outcome{{Test: "a", Result: resultSkipped}}))
	rows, err := readResults(path)
	require.NoError(t, err)
	require.Equal(t, []row{
		{Suite: suiteLiqo, Package: "reflection", Test: "a", Results: map[string]string{sideStock: resultPassed}},
		{Suite: suiteLiqo, Package: "unoffload", Test: "a", Results: map[string]string{sideStock: resultSkipped, sideDropIn: resultPassed}},
	}, rows)
}

func TestReportsOfGinkgoAreRead(t *testing.T) {
	outcomes, err := readReport([]byte(`[{"SpecReports": [
		{"LeafNodeType": "BeforeSuite", "State": "passed"},
		{"LeafNodeType": "It", "ContainerHierarchyTexts": ["Liqo E2E", "Offloading  policies"], "LeafNodeText": "is ready", "State": "passed"},
		{"LeafNodeType": "It", "ContainerHierarchyTexts": ["Liqo E2E"], "LeafNodeText": "is gone", "State": "timedout",
			"Failure": {"Message": "Timed out\nafter 60s"}},
		{"LeafNodeType": "AfterSuite", "State": "failed", "Failure": {"Message": "left"}}
	]}]`))
	require.NoError(t, err)
	require.Equal(t, []outcome{
		{Test: "Offloading policies / is ready", Result: resultPassed},
		{Test: "is gone", Result: resultFailed, Why: "Timed out after 60s"},
		{Test: "AfterSuite", Result: resultFailed, Why: "left"},
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
	require.Equal(t, []outcome{{Test: "TestGetPods", Result: resultFailed, Why: "timed out"}, {Test: "TestOther", Result: resultPassed}}, outcomes)
}

func TestScenariosAreNeitherGroupsNorSteps(t *testing.T) {
	var kept []string
	for _, o := range scenarios([]outcome{{Test: "chain/a_chain"}, {Test: "chain"}, {Test: "a_chain/its_step"}, {Test: "chain/a/step"}, {Test: "link"}}) {
		kept = append(kept, o.Test)
	}
	require.Equal(t, []string{"a chain", "link"}, kept)
}
