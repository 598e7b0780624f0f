package histories

import (
	"flag"
	"slices"
	"strings"

	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
)

// notYet lists the kinds of faults, the features of the simulation and the rules of the judge that are disabled. The
// Node is written by a model (runNode) that does not recreate a deleted Node. The broker's package node does that, and
// is tested there.
func notYet() []string { return []string{nodeDeleted, judge.Restored} }

// Features of the simulation that notYet may list.
const (
	slowAdmission = "slow admission"
	jobs          = "jobs"
	once          = "restartPolicy Never"
	force         = "deletion by force"
)

// even lists the entries of notYet that are enabled nevertheless, separated by commas.
var even = flag.String("even", "", "what of notYet there is nevertheless, separated by commas; all is everything")

// is reports whether a feature is enabled.
func is(what string) bool { return !slices.Contains(missing(), what) }

// missing returns notYet without the entries of even.
func missing() []string {
	if *even == "all" {
		return nil
	}
	return slices.DeleteFunc(notYet(), func(one string) bool { return slices.Contains(strings.Split(*even, ","), one) })
}
