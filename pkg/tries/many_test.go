package tries

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every provider of a big federation refuses the pod at once, by a policy of its own for example: it must be tried less and less.
func TestAPodThatIsRefusedByManyIsTriedLessAndLess(t *testing.T) {
	for _, slices := range []int{maxEntries, maxEntries + 1, 100} {
		t.Run(fmt.Sprint(slices), func(t *testing.T) {
			var tries Tries
			tried := 0
			for second := range 3600 {
				now := noon.Add(time.Duration(second) * time.Second)
				for i := range slices {
					if name := fmt.Sprintf("p%03d", i); !now.Before(tries[name].Until) {
						tries = tries.After(name, "refused: Forbidden", now, 5*time.Minute)
						tried++
						break
					}
				}
			}
			require.Less(t, tried, 3*slices, "in an hour")
		})
	}
}
