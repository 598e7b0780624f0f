package caller

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

	"github.com/capacitorset/liqo-broker-vk/pkg/access"
)

const (
	// validTTL is how long a valid token is not reviewed again, as in the kubelet (authentication.webhook.cacheTTL);
	// rejectedTTL is the same for an invalid one.
	validTTL    = 2 * time.Minute
	rejectedTTL = time.Minute
	// graceTTL is how much longer a token is accepted while its user has no allowance for another review. So a revoked
	// one is accepted for at most 4 minutes.
	graceTTL = 2 * time.Minute
	// ownerTTL is how long the user of a token is cached, whose allowance the next review is taken from.
	ownerTTL = time.Hour
	// keptTokens bounds the memory for invented tokens, reviews the parallel requests to the API server.
	keptTokens = 4096
	reviews    = 8
)

// tokens caches the users of tokens, and invalid tokens. The cache of k8s.io/apiserver has no bound, and does not cache
// rejections.
type tokens struct {
	reviewer authenticator.Token
	clock    clock.PassiveClock
	// owned and rejected are separate, so that invented tokens do not evict valid ones.
	owned, rejected *cache.LRUExpireCache
	asking          access.Flight[user.Info]
	slots           *semaphore.Weighted
}

func newTokens(reviewer authenticator.Token, clk clock.PassiveClock) *tokens {
	return &tokens{
		reviewer: reviewer, clock: clk, slots: semaphore.NewWeighted(reviews),
		owned:    cache.NewLRUExpireCacheWithClock(keptTokens, clk),
		rejected: cache.NewLRUExpireCacheWithClock(keptTokens, clk),
	}
}

// owner is the user of a token at its last review.
type owner struct {
	who      user.Info
	reviewed time.Time
}

// look returns what is cached of a token: its last user, nil if there is none, or that it is invalid.
func (t *tokens) look(token string) (was *owner, rejected bool) {
	key := sha256.Sum256([]byte(token))
	if _, rejected := t.rejected.Get(key); rejected {
		return nil, true
	}
	if known, ok := t.owned.Get(key); ok {
		return known.(*owner), false // Nothing else is put in.
	}
	return nil, false
}

// isGood reports whether a token needs no review, or none within some more time.
func (t *tokens) isGood(was *owner, more time.Duration) bool {
	return was != nil && t.clock.Since(was.reviewed) < validTTL+more
}

// review has the API server review a token, once for all parallel requests with it, if spend allows it. It returns nil if
// the token is invalid, and an error if there was no review, or that of spend.
func (t *tokens) review(ctx context.Context, token string, spend func() error) (user.Info, error) {
	key := sha256.Sum256([]byte(token))
	return t.asking.Do(ctx, key, func(ctx context.Context) (user.Info, error) {
		if err := spend(); err != nil {
			return nil, err
		}
		if err := t.slots.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		defer t.slots.Release(1)
		response, ok, err := t.reviewer.AuthenticateToken(ctx, token)
		switch {
		case errors.Is(err, access.ErrRejected), err == nil && !ok:
			t.owned.Remove(key)
			t.rejected.Add(key, nil, rejectedTTL)
			return nil, nil // The token is invalid.
		case err != nil:
			return nil, err
		}
		t.owned.Add(key, &owner{who: response.User, reviewed: t.clock.Now()}, ownerTTL)
		return response.User, nil
	})
}
