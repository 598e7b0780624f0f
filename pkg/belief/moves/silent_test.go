package moves

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A pod that waits may stop to ask: its provider, which can be reached, does not answer any more whether it has ended
// (pods.Controller.checkStatus). It must not hold up the pods of others.
func TestAPodThatDoesNotAskAnyMoreHoldsUpNoOther(t *testing.T) {
	limit := NewLimit(1)
	require.Zero(t, limit.Delay("first", noon))
	require.Positive(t, limit.Delay("silent", noon))
	for now := noon; now.Sub(noon) < time.Hour; now = now.Add(longestDelay) {
		if limit.Delay("other", now) == 0 {
			return
		}
	}
	t.Fatal("it has waited for an hour")
}
