package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
)

const (
	// validTTL is how long a valid token is not reviewed again, as in the kubelet (authentication.webhook.cacheTTL).
	validTTL = 2 * time.Minute
	// ownerTTL is how long the user of a token is cached: the next review is charged to that user's allowance.
	ownerTTL = time.Hour
	// keptTokens bounds the memory for invented tokens, reviews the parallel requests to the API server of callers with
	// an allowance.
	keptTokens = 4096
	reviews    = 8
)

// Tokens caches the users of tokens, and invalid tokens. The cache of k8s.io/apiserver has no bound, and does not cache
// rejections.
type Tokens struct {
	reviewer authenticator.Token
	clock    clock.PassiveClock
	// rejectedTTL is how long an invalid token is not reviewed again.
	rejectedTTL time.Duration
	// owned and rejected are separate, so that invented tokens do not evict valid ones.
	owned, rejected *cache.LRUExpireCache
	asking          flight[user.Info]
	slots           *semaphore.Weighted
}

// NewTokens returns an empty cache of the reviewer's answers. An invalid token is not reviewed again for rejectedTTL.
func NewTokens(reviewer authenticator.Token, rejectedTTL time.Duration, clk clock.PassiveClock) *Tokens {
	return &Tokens{
		reviewer: reviewer, rejectedTTL: rejectedTTL, clock: clk, slots: semaphore.NewWeighted(reviews),
		owned:    cache.NewLRUExpireCacheWithClock(keptTokens, clk),
		rejected: cache.NewLRUExpireCacheWithClock(keptTokens, clk),
	}
}

// Owner is the user of a token at its last review.
type Owner struct {
	Who      user.Info
	reviewed time.Time
}

// Look returns the cached entry of a token: its last user, nil if there is none, or that it is invalid.
func (t *Tokens) Look(token string) (was *Owner, rejected bool) {
	key := sha256.Sum256([]byte(token))
	if _, rejected := t.rejected.Get(key); rejected {
		return nil, true
	}
	if known, ok := t.owned.Get(key); ok {
		return known.(*Owner), false // No other type is put in.
	}
	return nil, false
}

// IsGood reports whether a token needs no review now, or needs none for the time in more.
func (t *Tokens) IsGood(was *Owner, more time.Duration) bool {
	return was != nil && t.clock.Since(was.reviewed) < validTTL+more
}

// Review makes the API server review a token, once for all parallel requests with it, if spend allows it; a few reviews
// run at a time. It returns nil if the token is invalid, and an error if there was no review, which may be spend's.
// Without spend the caller limits the reviews: slow reviews of invented tokens must not delay the reviews of other
// callers.
func (t *Tokens) Review(ctx context.Context, token string, spend func() error) (user.Info, error) {
	key := sha256.Sum256([]byte(token))
	return t.asking.Do(ctx, key, func(ctx context.Context) (user.Info, error) {
		if spend != nil {
			if err := spend(); err != nil {
				return nil, err
			}
			if err := t.slots.Acquire(ctx, 1); err != nil {
				return nil, err
			}
			defer t.slots.Release(1)
		}
		response, ok, err := t.reviewer.AuthenticateToken(ctx, token)
		switch {
		case errors.Is(err, ErrRejected), err == nil && !ok:
			t.owned.Remove(key)
			t.rejected.Add(key, nil, t.rejectedTTL)
			return nil, nil // The token is invalid.
		case err != nil:
			return nil, err
		}
		t.owned.Add(key, &Owner{Who: response.User, reviewed: t.clock.Now()}, ownerTTL)
		return response.User, nil
	})
}

// AuthenticateToken implements authenticator.Token, for callers without an allowance of reviews.
func (t *Tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	was, rejected := t.Look(token)
	switch {
	case rejected:
		return nil, false, nil
	case t.IsGood(was, 0):
		return &authenticator.Response{User: was.Who}, true, nil
	}
	who, err := t.Review(ctx, token, nil)
	return &authenticator.Response{User: who}, err == nil && who != nil, err
}
