package histories

import (
	"flag"
	"slices"
	"strings"

	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
)

// notYet are the kinds of faults, the ways of the world and the rules of the judge that the broker does not pass yet. A provider that is not
// ready and reads pods is failed over now and then. The Node is not made again by the model that writes it (runNode). Slow admission, deletion
// by force and pods that are refused, not made or held have not been tried with a broker that is to pass them.
func notYet() []string {
	return []string{
		"provider is not ready", "provider refuses pods", "provider makes no pods", "provider holds pods", nodeDeleted, slowAdmission, force,
		judge.Names, judge.Restored,
	}
}

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
