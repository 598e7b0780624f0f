package aggregator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The clock of a leader may be set back, or be behind the previous leader's.
func TestACooldownEndsByWhicheverClock(t *testing.T) {
	const interval = 5 * time.Minute
	for name, tc := range map[string]struct{ granted, left time.Duration }{
		"now":                          {0, interval},
		"an interval ago":              {-interval, 0},
		"an hour ago":                  {-time.Hour, 0},
		"by a clock somewhat ahead":    {time.Second, interval + time.Second},
		"by a clock that was set back": {time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			slice := newSlice("gpu", "1", withGrant("1", dayOne.Add(tc.granted)))
			require.Equal(t, tc.left, cooldownOf(slice, dayOne, interval))
		})
	}
}
