package caller

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
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
	// keptTokens bounds what invented tokens cost in memory, reviews what they cost the API server.
	keptTokens = 4096
	reviews    = 8
	// reviewTimeout bounds one review, whoever waits for it.
	reviewTimeout = 10 * time.Second
)

// tokens remembers whose token is whose, and which are nobody's. The cache of k8s.io/apiserver has no bound, and forgets
// rejections at once.
type tokens struct {
	reviewer authenticator.Token
	known    *cache.LRUExpireCache
	asking   singleflight.Group
	slots    *semaphore.Weighted
}

func newTokens(reviewer authenticator.Token, clk clock.PassiveClock) *tokens {
	return &tokens{
		reviewer: reviewer, known: cache.NewLRUExpireCacheWithClock(keptTokens, clk), slots: semaphore.NewWeighted(reviews),
	}
}

// look says what is known of a token without asking anybody: its user, or nil if it is nobody's; false if nothing is.
func (t *tokens) look(token string) (user.Info, bool) {
	answer, known := t.known.Get(sha256.Sum256([]byte(token)))
	if !known {
		return nil, false
	}
	who, _ := answer.(user.Info)
	return who, true
}

// review asks the API server, once for all who ask about the same token at the same time. It returns nil if the token is
// nobody's, and an error if the API server could not be asked.
func (t *tokens) review(ctx context.Context, token string) (user.Info, error) {
	key := sha256.Sum256([]byte(token))
	answers := t.asking.DoChan(string(key[:]), func() (any, error) {
		// Who asked first may leave; the others still wait.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		if err := t.slots.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		defer t.slots.Release(1)
		response, ok, err := t.reviewer.AuthenticateToken(ctx, token)
		switch {
		case errors.Is(err, access.ErrRejected), err == nil && !ok:
			t.known.Add(key, nil, rejectedTTL)
			return nil, nil //nolint:nilnil // Nobody is an answer.
		case err != nil:
			return nil, err
		}
		t.known.Add(key, response.User, validTTL)
		return response.User, nil
	})
	select {
	case answer := <-answers:
		who, _ := answer.Val.(user.Info)
		return who, answer.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
