package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/test/chaos"
)

// chaos lets faults of all important kinds happen at once while pods come and go, and has the judge of the histories in virtual time
// judge what happened.
func (b *brokered) chaos(t *testing.T) {
	times := chaos.Tolerance()
	times.ProbeInterval, times.ProbeTimeout, times.FailoverAfter = time.Second, time.Second, failoverAfter
	times.PendingTimeout = 2 * time.Minute // That of the policies, by default.
	const name = "chaos"
	t.Cleanup(func() {
		if t.Failed() {
			b.remove(t, name)
		}
	})
	federation := &chaos.Federation{Sandbox: b.Sandbox, Node: brokerNode, Times: times}
	result, err := federation.Happen(t.Context(), chaos.Short(name), t.Output())
	require.NoError(t, err)
	t.Log(result)
	assert.False(t, result.Violated(), "see the violations above")
	assert.Greater(t, result.Pods, 30)
}
