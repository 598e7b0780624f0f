package histories

import (
	"slices"

	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
)

// notYet are the kinds of faults, the ways of the world and the rules of the judge that the broker does not pass yet.
func notYet() []string {
	return []string{
		"provider lists nothing", "provider rejects the identity", "provider forbids", "provider throttles", "provider is not ready", "provider reads nothing", "provider lists slowly",
		"provider refuses pods", "provider makes no pods", "provider holds pods", "provider's node is drained", "provider's node dies", "Node is deleted",
		slowAdmission, jobs, once, force,
		judge.Evidence, judge.SomewhereBetter, judge.Names, judge.Once, judge.Restored, judge.Silence, judge.Disrupted,
	}
}

// Ways of the world.
const (
	slowAdmission = "slow admission"
	jobs          = "jobs"
	once          = "restartPolicy Never"
	force         = "deletion by force"
)

// is reports whether something is there already.
func is(what string) bool { return !slices.Contains(notYet(), what) }
