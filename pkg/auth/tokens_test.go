package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

type answers func() (*authenticator.Response, bool, error)

func (a answers) AuthenticateToken(context.Context, string) (*authenticator.Response, bool, error) {
	return a()
}

func TestATokenIsReviewedAgainWhenItsAnswerIsOld(t *testing.T) {
	away := errors.New("the API server is away")
	for name, tc := range map[string]struct {
		answer answers
		ok     bool
		err    error
		// kept is how long no other review is made.
		kept time.Duration
	}{
		"valid": {
			func() (*authenticator.Response, bool, error) {
				return &authenticator.Response{User: &user.DefaultInfo{Name: "a"}}, true, nil
			}, true, nil, validTTL,
		},
		"invalid":   {func() (*authenticator.Response, bool, error) { return nil, false, ErrRejected }, false, nil, rejectedTTL},
		"not known": {func() (*authenticator.Response, bool, error) { return nil, false, nil }, false, nil, rejectedTTL},
		"no answer": {func() (*authenticator.Response, bool, error) { return nil, false, away }, false, away, 0},
		"no reviews": {
			func() (*authenticator.Response, bool, error) { return nil, false, &MissingPermissionError{} },
			false, &MissingPermissionError{}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			clk, reviews := clocktesting.NewFakeClock(time.Unix(0, 0)), 0
			tokens := NewTokens(answers(func() (*authenticator.Response, bool, error) {
				reviews++
				return tc.answer()
			}), rejectedTTL, clk)
			ask := func(want int) {
				response, ok, err := tokens.AuthenticateToken(t.Context(), "token")
				require.Equal(t, tc.ok, ok)
				require.Equal(t, tc.err, err)
				require.Equal(t, want, reviews)
				if ok {
					require.Equal(t, "a", response.User.GetName())
				}
			}
			ask(1)
			if tc.kept > 0 {
				clk.Step(tc.kept - time.Second)
				ask(1)
			}
			clk.Step(2 * time.Second)
			ask(2)
		})
	}
}

// An API server that asks a slow webhook about invented tokens answers others meanwhile.
func TestSlowReviewsHoldUpNoOthersWithoutAnAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		tokens := NewTokens(authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
			if token == "good" {
				return &authenticator.Response{User: &user.DefaultInfo{Name: "prometheus"}}, true, nil
			}
			select {
			case <-ctx.Done():
				return nil, false, ctx.Err()
			case <-answer:
				return nil, false, nil
			}
		}), rejectedTTL, clock.RealClock{})
		var asking sync.WaitGroup
		for i := range 2 * reviews {
			asking.Go(func() { _, _, _ = tokens.AuthenticateToken(t.Context(), fmt.Sprint("invented", i)) })
		}
		synctest.Wait()
		began := time.Now()
		_, ok, err := tokens.AuthenticateToken(t.Context(), "good")
		close(answer)
		asking.Wait()
		require.NoError(t, err)
		require.True(t, ok)
		require.Zero(t, time.Since(began))
	})
}
