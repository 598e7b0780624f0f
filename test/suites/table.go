package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// table returns the rows of a suite as a table of Markdown, with why a test does not pass everywhere.
func table(rows []row, suite string) string {
	var b strings.Builder
	names := slices.DeleteFunc(columns(suite), func(side string) bool {
		return !slices.ContainsFunc(rows, func(r row) bool { return r.Suite == suite && r.Results[side] != "" })
	})
	head, rule := "| test |", "|---|"
	for _, name := range names {
		head, rule = head+" "+name+" |", rule+"---|"
	}
	b.WriteString(head + " why |\n" + rule + "---|\n")
	for _, r := range rows {
		if r.Suite != suite {
			continue
		}
		b.WriteString("| " + title(r) + " |")
		for _, side := range names {
			b.WriteString(" " + mark(r.Results[side]) + " |")
		}
		b.WriteString(" " + strings.Join(whys(r), "; ") + " |\n")
	}
	return b.String()
}

// title is the text of a test in a table.
func title(r row) string {
	text := strings.ReplaceAll(r.Test, "|", `\|`)
	switch {
	case r.Suite == suiteVersions:
		return text
	case r.Package == "":
		return "`" + text + "`"
	}
	return "`" + r.Package + "`: " + text
}

// mark is a result in a table.
func mark(result string) string {
	if result == "" {
		return "–"
	}
	return result
}

// whys are the reasons for which a test does not pass on some sides.
func whys(r row) (found []string) {
	for _, n := range notes {
		if n.suite == r.Suite && strings.Contains(r.Package+": "+r.Test, n.test) && slices.ContainsFunc(n.sides, func(side string) bool {
			return r.Results[side] != "" && r.Results[side] != resultPassed
		}) {
			found = append(found, n.why)
		}
	}
	return found
}

// unexplained returns the tests that do not pass on a side and have no reason for it, and those that pass with Liqo's virtual kubelet
// and not with ours in its place.
func unexplained(rows []row) (faults []string) {
	for _, r := range rows {
		for _, side := range columns(r.Suite) {
			if result := r.Results[side]; result == "" || result == resultPassed || hasNote(r, side) {
				continue
			}
			faults = append(faults, fmt.Sprintf("%s, %s: %s: %s", side, r.Package, r.Test, r.Whys[side]))
		}
		if r.Results[sideStock] == resultPassed && r.Results[sideDropIn] != resultPassed {
			faults = append(faults, fmt.Sprintf("%s: %s passes with Liqo's virtual kubelet and not with ours", r.Package, r.Test))
		}
	}
	return faults
}

func hasNote(r row, side string) bool {
	return slices.ContainsFunc(notes, func(n note) bool {
		return n.suite == r.Suite && strings.Contains(r.Package+": "+r.Test, n.test) && slices.Contains(n.sides, side)
	})
}

// testedWith returns the table of versions of the README.
func testedWith(rows []row) string {
	var b strings.Builder
	b.WriteString("| | by `make test` | by `make matrix`, last results |\n|---|---|---|\n")
	fmt.Fprintf(&b, "| Liqo | %s | %s |\n", sandbox.LiqoVersion, share(rows, suiteVersions, "Liqo "+sandbox.LiqoV11Version, sandbox.LiqoV11Version+": ", "scenarios"))
	fmt.Fprintf(&b, "| Kubernetes | %s | %s |\n", sandbox.KubernetesVersion,
		share(rows, suiteVersions, "Kubernetes "+sandbox.KubernetesLaterVersion, sandbox.KubernetesLaterVersion+": ", "scenarios"))
	fmt.Fprintf(&b, "| Liqo's own suites, our virtual kubelet in place of Liqo's | | %s |\n", share(rows, suiteLiqo, sideDropIn, "", "tests"))
	fmt.Fprintf(&b, "| the same with Liqo's virtual kubelet | | %s |\n", share(rows, suiteLiqo, sideStock, "", "tests"))
	fmt.Fprintf(&b, "| virtual-kubelet's own suite, our virtual kubelet | | %s |\n", share(rows, suiteKubelet, sideDropIn, "", "tests"))
	return b.String()
}

// share describes how many of the tests of a suite that ran in a column pass.
func share(rows []row, suite, column, prefix, what string) string {
	passed, all := 0, 0
	for _, r := range rows {
		if result := r.Results[column]; r.Suite == suite && result != "" && result != resultSkipped {
			all++
			if result == resultPassed {
				passed++
			}
		}
	}
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("%s%d of %d %s pass", prefix, passed, all, what)
}
