package caller

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capacitorset/liqo-broker-vk/pkg/auth"
)

// As in package auth.
const (
	validTTL   = 2 * time.Minute
	ownerTTL   = time.Hour
	keptTokens = 4096
)

// reviewer knows the token "good".
type reviewer struct {
	mu    sync.Mutex
	asked int
	err   error
	wait  func()
	// revoked makes the token unknown.
	revoked bool
}

func (r *reviewer) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	if r.wait != nil {
		r.wait()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	switch {
	case r.err != nil:
		return nil, false, r.err
	case token != "good" || r.revoked:
		return nil, false, fmt.Errorf("%w: unknown", auth.ErrRejected)
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: "ann"}}, true, nil
}

// certificates accepts every certificate whose name is not "bad".
type certificates struct{}

func (certificates) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil {
		return nil, false, nil
	}
	subject := r.TLS.PeerCertificates[0].Subject
	if subject.CommonName == "bad" {
		return nil, false, errors.New("it is bad")
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: subject.CommonName, Groups: subject.Organization}}, true, nil
}

func request(from, authorization, certificate string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.RemoteAddr = from
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	if certificate != "" {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: certificate}}}}
	}
	return r
}

const here = "192.0.2.1:1234"

func TestWhoCalls(t *testing.T) {
	for name, tc := range map[string]struct {
		authorization, certificate string
		want                       string
		byToken                    bool
		err                        error
		problem                    string
	}{
		"no credentials":                       {},
		"by a token":                           {authorization: "Bearer good", want: "ann", byToken: true},
		"by a token, in whatever case":         {authorization: "bearer  good ", want: "ann", byToken: true},
		"by a certificate":                     {certificate: "bob", want: "bob"},
		"a token counts before a certificate":  {authorization: "Bearer good", certificate: "bob", want: "ann", byToken: true},
		"an invalid token is never ignored":    {authorization: "Bearer bad", certificate: "bob", err: ErrInvalidToken},
		"another scheme is":                    {authorization: "Basic Z29vZDpnb29k", certificate: "bob", want: "bob"},
		"an empty token is none":               {authorization: "Bearer ", want: ""},
		"a certificate that is not accepted":   {certificate: "bad", want: "", problem: "it is bad"},
		"a token without a scheme is no token": {authorization: "good"},
	} {
		t.Run(name, func(t *testing.T) {
			i := NewIdentifier(&reviewer{}, certificates{},
				NewAllowances(Limits{PerSecond: 10, Burst: 10}, nil, clock.RealClock{}), clock.RealClock{})
			got, err := i.Identify(request(here, tc.authorization, tc.certificate))
			if tc.err != nil {
				require.ErrorIs(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got.Name())
			require.Equal(t, tc.want != "", got.Known())
			require.Equal(t, tc.byToken, got.ByToken)
			require.Equal(t, tc.problem, got.Certificate)
		})
	}
}

func TestTokensAreReviewedOnceInAWhile(t *testing.T) {
	r, clk := &reviewer{}, testclock.NewFakeClock(time.Now())
	i := NewIdentifier(r, nil, NewAllowances(Limits{PerSecond: 1000, Burst: 1000}, nil, clk), clk)
	ask := func(token string, times int) (err error) {
		for range times {
			_, err = i.Identify(request(here, "Bearer "+token, ""))
		}
		return err
	}
	require.NoError(t, ask("good", 5))
	require.Equal(t, 1, r.asked)
	require.ErrorIs(t, ask("bad", 5), ErrInvalidToken)
	require.Equal(t, 2, r.asked, "rejections are remembered, too")

	clk.Step(rejectedTTL + time.Second)
	require.ErrorIs(t, ask("bad", 5), ErrInvalidToken)
	require.NoError(t, ask("good", 5))
	require.Equal(t, 3, r.asked)
	clk.Step(validTTL)
	require.NoError(t, ask("good", 5))
	require.Equal(t, 4, r.asked)

	r.err = errors.New("connection refused")
	require.ErrorIs(t, ask("new", 1), ErrUnavailable)
	require.NoError(t, ask("good", 1), "what is known stays so")
	r.err = nil
	require.ErrorIs(t, ask("new", 1), ErrInvalidToken, "a failed review is not cached")

	r.err = &auth.MissingPermissionError{Remedy: "grant it"}
	var missing *auth.MissingPermissionError
	require.ErrorAs(t, ask("newer", 1), &missing)
}

func TestOneReviewAnswersAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		r := &reviewer{wait: func() { <-answer }}
		i := NewIdentifier(r, nil, NewAllowances(Limits{PerSecond: 1000, Burst: 1000}, nil, clock.RealClock{}), clock.RealClock{})
		impatient, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for n := range 5 {
			wg.Go(func() {
				in := request(here, "Bearer good", "")
				if n == 0 {
					in = in.WithContext(impatient)
				}
				switch who, err := i.Identify(in); {
				case n == 0 && !errors.Is(err, context.Canceled):
					t.Errorf("who leaves gets no answer: %v", err)
				case n > 0 && (err != nil || who.Name() != "ann"):
					t.Errorf("%v %v", who.Name(), err)
				}
			})
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		close(answer)
		wg.Wait()
		require.Equal(t, 1, r.asked)
	})
}

func TestAllowances(t *testing.T) {
	r, clk := &reviewer{}, testclock.NewFakeClock(time.Now())
	i := NewIdentifier(r, certificates{}, NewAllowances(Limits{PerSecond: 1, Burst: 3}, nil, clk), clk)
	allowed := func(from, authorization, certificate string) int {
		for n := range 100 {
			_, err := i.Identify(request(from, authorization, certificate))
			var limit *LimitError
			if errors.As(err, &limit) {
				require.Positive(t, limit.RetryAfter)
				require.LessOrEqual(t, limit.RetryAfter, time.Second)
				return n
			}
		}
		return 100
	}
	require.Equal(t, 3, allowed(here, "", ""), "a stranger, by host")
	require.Zero(t, allowed("192.0.2.1:9999", "", ""), "another port is the same host")
	require.Equal(t, 3, allowed("192.0.2.2:1", "", ""), "another host has its own")
	require.Equal(t, 3, allowed("[2001:db8::1]:1", "", ""))
	require.Zero(t, allowed("[2001:db8::ffff]:1", "", ""), "one host has all of an IPv6 network")
	require.Equal(t, 3, allowed("[2001:db8:0:1::1]:1", "", ""))
	require.Zero(t, allowed("[::ffff:192.0.2.2]:1", "", ""), "IPv4 in IPv6 is IPv4")

	require.Equal(t, 3, allowed(here, "", "bob"), "who is known is counted by name, wherever the others of the host are")
	require.Zero(t, allowed("192.0.2.3:1", "", "bob"), "and wherever it is")

	require.Equal(t, 3, allowed(here, "Bearer good", ""), "a token is reviewed for a host whose strangers have asked enough")
	require.Equal(t, 1, r.asked)
	require.Equal(t, 4, allowed("192.0.2.5:1", "Bearer bad", ""), "rejected tokens count against the host, after the first time")
	clk.Step(time.Second)
	require.Equal(t, 1, allowed(here, "", ""), "one a second")
}

// behind is one proxy that all callers use: ann, whose token is good, and strangers.
type behind struct {
	*testing.T
	*Identifier
	reviewer *reviewer
	clock    *testclock.FakeClock
}

func behindOneProxy(t *testing.T) *behind {
	t.Helper()
	b := &behind{T: t, reviewer: &reviewer{}, clock: testclock.NewFakeClock(time.Now())}
	b.Identifier = NewIdentifier(b.reviewer, nil, NewAllowances(Limits{PerSecond: 50, Burst: 100}, nil, b.clock), b.clock)
	return b
}

func (b *behind) by(token string) error {
	_, err := b.Identify(request(here, "Bearer "+token, ""))
	return err
}

// flood sends requests until the allowances are used up: without a token, with a bad one, and with a new invented one
// each time.
func (b *behind) flood() {
	b.Helper()
	for n := range 500 {
		_, _ = b.Identify(request(here, "", ""))
		_ = b.by("bad")
		_ = b.by(fmt.Sprint("invented at ", b.clock.Now(), n))
	}
	var limit *LimitError
	require.ErrorAs(b, b.by("invented"), &limit)
}

func TestStrangersLockNobodyOut(t *testing.T) {
	b := behindOneProxy(t)
	require.NoError(t, b.by("good"))
	for _, later := range []time.Duration{0, validTTL, validTTL + graceTTL, ownerTTL - time.Second} {
		b.clock.Step(later)
		b.flood()
		require.NoError(t, b.by("good"), "after %s", later)
	}
	asked := b.reviewer.asked
	b.flood()
	require.Equal(t, asked, b.reviewer.asked, "what the host may have reviewed is used up")
}

func TestInventedTokensEvictNoGoodOne(t *testing.T) {
	b := behindOneProxy(t)
	require.NoError(t, b.by("good"))
	for n := range 2 * keptTokens {
		_, err := b.Identify(request(fmt.Sprintf("192.0.%d.%d:1", n/250, n%250), fmt.Sprint("Bearer invented-", n), ""))
		require.ErrorIs(t, err, ErrInvalidToken)
	}
	asked := b.reviewer.asked
	require.NoError(t, b.by("good"))
	require.Equal(t, asked, b.reviewer.asked)
}

// A user whose allowance for reviews is used up may go on using a token that is good, but not for long.
func TestATokenIsGoodForAWhileWhenItsReviewHasToWait(t *testing.T) {
	ann := &user.DefaultInfo{Name: "ann"}
	for name, tc := range map[string]struct {
		after time.Duration
		good  bool
	}{
		"as long as it needs none":       {validTTL - time.Second, true},
		"as long again":                  {validTTL + graceTTL - time.Second, true},
		"no longer":                      {validTTL + graceTTL, false},
		"nor while its owner is in mind": {ownerTTL - time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := behindOneProxy(t)
			require.NoError(t, b.by("good"))
			b.clock.Step(tc.after)
			for b.allowances.SpendReview(ann) == nil {
				continue // Until the allowance is used up.
			}
			var limit *LimitError
			if err := b.by("good"); tc.good {
				require.NoError(t, err)
			} else {
				require.ErrorAs(t, err, &limit)
			}
			require.Equal(t, 1, b.reviewer.asked)
		})
	}
}

func TestARevokedTokenIsGoodNoLonger(t *testing.T) {
	b := behindOneProxy(t)
	require.NoError(t, b.by("good"))
	b.reviewer.revoked = true
	require.NoError(t, b.by("good"))
	b.clock.Step(validTTL)
	require.ErrorIs(t, b.by("good"), ErrInvalidToken)
	require.ErrorIs(t, b.by("good"), ErrInvalidToken)
	require.Equal(t, 2, b.reviewer.asked)
	b.clock.Step(rejectedTTL)
	b.flood()
	var limit *LimitError
	require.ErrorAs(t, b.by("good"), &limit, "it is a stranger's now")
}

func TestFilesAndRequestsAreCountedApart(t *testing.T) {
	clk := testclock.NewFakeClock(time.Now())
	a := NewAllowances(Limits{PerSecond: 1, Burst: 3}, nil, clk)
	for range 3 * filesPerRequest {
		require.Zero(t, a.TakeFile("192.0.2.1"))
	}
	require.Positive(t, a.TakeFile("192.0.2.1"))
	require.Zero(t, a.TakeFile("192.0.2.2"))
	require.Zero(t, a.Take(hostKey("192.0.2.1"), 3))
	clk.Step(time.Second)
	for range filesPerRequest {
		require.Zero(t, a.TakeFile("192.0.2.1"))
	}
	require.Positive(t, a.TakeFile("192.0.2.1"))
}

func TestWhatIsWorthMoreCountsMore(t *testing.T) {
	clk := testclock.NewFakeClock(time.Now())
	a := NewAllowances(Limits{PerSecond: 1, Burst: 10}, nil, clk)
	require.Zero(t, a.Take("x", 4))
	require.Zero(t, a.Take("x", 4))
	require.Equal(t, 2*time.Second, a.Take("x", 4))
	require.Equal(t, 2*time.Second, a.Take("x", 4), "what is refused is not counted")
	require.Zero(t, a.Take("x", 2))
	require.Zero(t, a.Take("y", 1000), "nothing is worth more than a burst, or it would never be allowed")
}

func TestStreamsAreCounted(t *testing.T) {
	a := NewAllowances(Limits{PerSecond: 1, Burst: 1, Streams: 2, TotalStreams: 5}, nil, clock.RealClock{})
	open := func(host string) (func(), bool) { return a.Open(&Caller{}, host) }
	first, ok := open("x")
	require.True(t, ok)
	_, ok = open("x")
	require.True(t, ok)
	_, ok = open("x")
	require.False(t, ok, "two for each")
	_, ok = open("y")
	require.True(t, ok)
	_, ok = open("y")
	require.True(t, ok)
	_, ok = open("y")
	require.False(t, ok)
	_, ok = open("z")
	require.True(t, ok)
	_, ok = open("z")
	require.False(t, ok, "five for all")
	require.Equal(t, 5, a.Streams())
	first()
	_, ok = open("v")
	require.True(t, ok)
	first()
	require.Equal(t, 5, a.Streams(), "a stream is closed once")
}

// peering is a consumer c1 with its tenant namespace, and a namespace that came from it.
type peering struct{}

func (peering) TenantNamespace(consumer string) (string, bool) {
	return "liqo-tenant-c1", consumer == "c1"
}

func (peering) TenantOf(namespace string) (string, bool) { return "c1", namespace == "liqo-tenant-c1" }

func (peering) ConsumerOfNamespace(namespace string) string {
	return map[string]string{"shop-c1": "c1"}[namespace]
}

func TestAConsumerIsOneCallerWithAllItsIdentities(t *testing.T) {
	a := NewAllowances(Limits{PerSecond: 1, Burst: 2, Streams: 2, TotalStreams: 10}, peering{}, testclock.NewFakeClock(time.Now()))
	slice := func(name string) *Caller {
		return &Caller{User: &user.DefaultInfo{Name: name, Groups: []string{"c1", user.AllAuthenticated}}}
	}
	for _, who := range []*Caller{
		slice("slice-1"), slice("slice-2"),
		{User: &user.DefaultInfo{Name: "c1", Groups: []string{"peers"}}},
		{User: &user.DefaultInfo{Name: "system:serviceaccount:liqo-tenant-c1:dashboard"}},
		{User: &user.DefaultInfo{Name: "system:serviceaccount:shop-c1:default"}},
	} {
		require.Equal(t, "consumer c1", a.Key(who, "192.0.2.1"), who.Name())
	}
	for name, who := range map[string]*Caller{
		"user ann": {User: &user.DefaultInfo{Name: "ann", Groups: []string{"developers"}}},
		"user system:serviceaccount:monitoring:c1": {User: &user.DefaultInfo{Name: "system:serviceaccount:monitoring:c1"}},
		"host 192.0.2.1": {},
	} {
		require.Equal(t, name, a.Key(who, "192.0.2.1"))
	}

	require.Zero(t, a.Take(a.Key(slice("slice-1"), ""), 1))
	require.Zero(t, a.Take(a.Key(slice("slice-2"), ""), 1))
	require.Positive(t, a.Take(a.Key(slice("slice-3"), ""), 1), "another certificate is no other allowance")

	opened := 0
	for i := range 100 {
		if _, ok := a.Open(slice(fmt.Sprint("slice-", i)), ""); ok {
			opened++
		}
	}
	require.Equal(t, 5, opened, "half of all")
	_, ok := a.Open(&Caller{User: &user.DefaultInfo{Name: "ann"}}, "")
	require.True(t, ok, "others find some")
}

func TestTheTimeOfAnAnswerCounts(t *testing.T) {
	clk := testclock.NewFakeClock(time.Now())
	a := NewAllowances(Limits{PerSecond: 10, Burst: 20}, nil, clk)
	require.Zero(t, a.Take("x", 20))
	a.Charge("x", 10*timePerRequest)
	require.Equal(t, 1100*time.Millisecond, a.Take("x", 1), "ten more than it had")
	a.Charge("x", time.Hour)
	clk.Step(3100 * time.Millisecond)
	require.Zero(t, a.Take("x", 1), "one answer counts for a burst at most")
	require.Zero(t, a.Take("y", 20))
}

func TestExplanationsOfACallerAreFew(t *testing.T) {
	a := NewAllowances(Limits{PerSecond: 1, Burst: 1}, nil, clock.RealClock{})
	done, ok := a.Explain("x")
	require.True(t, ok)
	for range explanations - 1 {
		_, ok = a.Explain("x")
		require.True(t, ok)
	}
	_, ok = a.Explain("x")
	require.False(t, ok)
	_, ok = a.Explain("y")
	require.True(t, ok)
	done()
	_, ok = a.Explain("x")
	require.True(t, ok)
}
