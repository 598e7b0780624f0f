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
	// validTTL is how long a reviewed token stays good, as in the real kubelet (authentication.webhook.cacheTTL), and
	// rejectedTTL how long one stays bad.
	validTTL    = 2 * time.Minute
	rejectedTTL = time.Minute
	// graceTTL is how much longer a token stays good while its user has to wait for another review: so one that is
	// revoked is good for 4 minutes at the most.
	graceTTL = 2 * time.Minute
	// ownerTTL is how long it is remembered whose a token was, good or not any more: its review is on that user's account.
	ownerTTL = time.Hour
	// keptTokens bounds what invented tokens cost in memory, reviews what they cost the API server.
	keptTokens = 4096
	reviews    = 8
)

// tokens remembers whose token is whose, and which are nobody's. The cache of k8s.io/apiserver has no bound, and forgets
// rejections at once.
type tokens struct {
	reviewer authenticator.Token
	clock    clock.PassiveClock
	// owned and rejected are apart, so that invented tokens do not evict good ones.
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

// owner is whose a token was when it was reviewed.
type owner struct {
	who      user.Info
	reviewed time.Time
}

// look says what is known of a token without asking anybody: whose it was, nil if nobody knows, or that it is bad.
func (t *tokens) look(token string) (was *owner, rejected bool) {
	key := sha256.Sum256([]byte(token))
	if _, rejected := t.rejected.Get(key); rejected {
		return nil, true
	}
	if known, ok := t.owned.Get(key); ok {
		return known.(*owner), false //nolint:forcetypeassert // Nothing else is put in.
	}
	return nil, false
}

// isGood says whether a token needs no review, or none within some more time.
func (t *tokens) isGood(was *owner, more time.Duration) bool {
	return was != nil && t.clock.Since(was.reviewed) < validTTL+more
}

// review asks the API server, once for all who ask about the same token at the same time, if spend allows it. It returns
// nil if the token is nobody's, and an error if the API server could not be asked, or that of spend.
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
			return nil, nil //nolint:nilnil // Nobody is an answer.
		case err != nil:
			return nil, err
		}
		t.owned.Add(key, &owner{who: response.User, reviewed: t.clock.Now()}, ownerTTL)
		return response.User, nil
	})
}
