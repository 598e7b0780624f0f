package histories

import (
	"flag"
	"slices"
	"strings"

	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
)

// notYet are the kinds of faults, the ways of the world and the rules of the judge that do not count yet. The Node is written by a model
// (runNode) that does not make it again when it is deleted, as the broker's package node does, which is tested there.
func notYet() []string { return []string{nodeDeleted, judge.Restored} }

// Ways of the world.
const (
	slowAdmission = "slow admission"
	jobs          = "jobs"
	once          = "restartPolicy Never"
	force         = "deletion by force"
)

// even are those of notYet that are there nevertheless, separated by commas.
var even = flag.String("even", "", "what of notYet there is nevertheless, separated by commas; all is everything")

// is reports whether something is there already.
func is(what string) bool { return !slices.Contains(missing(), what) }

// missing is notYet without even.
func missing() []string {
	if *even == "all" {
		return nil
	}
	return slices.DeleteFunc(notYet(), func(one string) bool { return slices.Contains(strings.Split(*even, ","), one) })
}
