// Package check finds out whether an installation of the broker is complete. It only reads the API of the broker's cluster.
package check

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// State is the result of a check.
type State string

// States, from the best to the worst.
const (
	// OK: nothing is wrong.
	OK State = "OK"
	// Warn: the broker works, and something needs attention; or the caller may not read the objects of the check.
	Warn State = "WARN"
	// Fail: pods are not assigned, or are not safe.
	Fail State = "FAIL"
)

// worse reports whether a state is worse than another one.
func (s State) worse(than State) bool {
	order := []State{OK, Warn, Fail}
	return slices.Index(order, s) > slices.Index(order, than)
}

// Check is one check and its result.
type Check struct {
	// Name is unique in a report: the subject, such as guard, or KIND/NAME, such as provider/p1.
	Name string `json:"name"`
	// State is OK, WARN or FAIL.
	State State `json:"state"`
	// Message is the observation, in one line.
	Message string `json:"message"`
	// Remedy is a command that mends the fault, or that shows its cause. Words in <> are the reader's to replace. It is
	// empty if the state is OK.
	Remedy string `json:"remedy,omitempty"`
}

// Report has the results of all checks.
type Report struct {
	// State is the worst state of the checks.
	State State `json:"state"`
	// Checks are in the order in which faults are best mended.
	Checks []Check `json:"checks"`
}

// Count returns the number of checks with a state.
func (r *Report) Count(state State) int {
	count := 0
	for i := range r.Checks {
		if r.Checks[i].State == state {
			count++
		}
	}
	return count
}

// Config has the parameters of Run.
type Config struct {
	// Client reads the objects, and asks for the caller's rights.
	Client Client
	// Node is the name of the broker's node.
	Node string
	// Version is the version of this program, such as v0.1.0. Liqo is the version of Liqo that it was built with.
	Version, Liqo string
	// Now is the time by the local clock.
	Now func() time.Time
	// Ahead returns by how much the clock of the API server is ahead of the local one, after a request; false if unknown.
	// Its resolution is a second. Nil if it is never known.
	Ahead func() (time.Duration, bool)
}

// Client is the part of client.Client that Run uses. Reviews of rights are objects that are created and not stored.
type Client interface {
	client.Reader
	// Review sends a review, which the API server answers in its status.
	Review(ctx context.Context, review client.Object) error
}

// Run reads the installation and checks it. It returns an error if a request fails for another reason than missing rights
// or a kind that the API server does not serve.
func Run(ctx context.Context, cfg *Config) (*Report, error) {
	i, err := read(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return i.report(), nil
}

// report decides; it reads nothing.
func (i *installation) report() *Report {
	r := &Report{State: OK}
	for _, checks := range []func() []Check{
		i.checkLiqo, i.checkCRDs, i.checkGuard, i.checkBroker, i.checkNode, i.checkOptions, i.checkVirtualKubelets,
		i.checkProviders, i.checkCredentials, i.checkRemoteIPAM, i.checkCatalog, i.checkLedger, i.checkClocks, i.checkRights,
	} {
		r.Checks = append(r.Checks, checks()...)
	}
	for j := range r.Checks {
		if r.Checks[j].State.worse(r.State) {
			r.State = r.Checks[j].State
		}
	}
	return r
}

// ok, warn and fail make checks.
func ok(name, message string) Check { return Check{Name: name, State: OK, Message: message} }

func warn(name, message, remedy string) Check {
	return Check{Name: name, State: Warn, Message: message, Remedy: remedy}
}

func fail(name, message, remedy string) Check {
	return Check{Name: name, State: Fail, Message: message, Remedy: remedy}
}
