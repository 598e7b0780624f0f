package process

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
)

func TestEventually(t *testing.T) {
	t.Run("what appears later is found", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			found, err := Eventually(t.Context(), logr.Discard(), time.Minute, "the thing", func(context.Context) (string, error) {
				if time.Since(start) < 20*time.Second {
					return "", errors.New("not there yet")
				}
				return "thing", nil
			})
			require.NoError(t, err)
			require.Equal(t, "thing", found)
			require.Less(t, time.Since(start), 40*time.Second)
		})
	})
	t.Run("an object that never appears is an error with its name and the time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start, asked := time.Now(), 0
			_, err := Eventually(t.Context(), logr.Discard(), time.Minute, "the thing", func(context.Context) (string, error) {
				asked++
				return "", errors.New("not there")
			})
			require.EqualError(t, err, "the thing: not there (gave up after 1m0s, --startup-timeout)")
			require.Equal(t, time.Minute, time.Since(start))
			require.Less(t, asked, 15, "with backoff")
		})
	})
	t.Run("being stopped differs from giving up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			_, err := Eventually(ctx, logr.Discard(), time.Minute, "the thing", func(context.Context) (string, error) {
				return "", errors.New("not there")
			})
			require.NoError(t, IfNotDone(ctx, err))
		})
	})
}
