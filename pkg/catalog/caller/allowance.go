package caller

import (
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"github.com/capacitorset/liqo-broker-vk/pkg/access"
	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
)

const (
	// rememberedCallers is how many callers are limited by what they have called already: those that called last.
	rememberedCallers = 8192
	// filesPerRequest is how many files of the dashboard count as one request: they cost little, and a page has thirty.
	filesPerRequest = 10
	// requestsPerReview and reviewBurst limit the reviews by the API server on account of a caller: a tenth of its requests,
	// and at once enough to sign in, on the dashboard and elsewhere.
	requestsPerReview = 10
	reviewBurst       = 25
	// openRequests is how many requests there may be at once. One host has at most half of them.
	openRequests = 512
)

// Limits are what each caller may ask, known ones by name, strangers by host.
type Limits struct {
	PerSecond float64
	Burst     int
	// Streams are how many each may have open, TotalStreams how many all of them may.
	Streams, TotalStreams int
	// Connections are how many a host may have open.
	Connections int
}

// Allowances limit the requests and streams of each caller.
type Allowances struct {
	clock clock.PassiveClock

	// A caller that has used up one of these has not used up another.
	requests, files, reviews *access.Limiter

	// streams are by caller, allStreams has one key.
	streams, allStreams *httpserve.Shares
	// open are requests that are not answered yet, by host.
	open *httpserve.Shares
}

// NewAllowances gives every caller the limits.
func NewAllowances(limits Limits, clk clock.PassiveClock) *Allowances {
	return &Allowances{
		clock: clk, streams: httpserve.NewShares(limits.Streams), allStreams: httpserve.NewShares(limits.TotalStreams),
		open:     httpserve.NewFairShares(openRequests),
		requests: access.NewLimiter(limits.PerSecond, limits.Burst, rememberedCallers),
		files:    access.NewLimiter(limits.PerSecond*filesPerRequest, limits.Burst*filesPerRequest, rememberedCallers),
		reviews:  access.NewLimiter(limits.PerSecond/requestsPerReview, reviewBurst, rememberedCallers),
	}
}

// Key returns the caller that a request is counted for.
func Key(who *Caller, host string) string {
	if who.Known() {
		return userKey(who.User)
	}
	return hostKey(host)
}

func userKey(who user.Info) string { return "user " + who.GetName() }

func hostKey(host string) string { return "host " + host }

// Take counts a request that is worth several, of which none is worth more than a burst. It returns 0, or how long the
// caller is to wait if it has nothing left, in which case nothing is counted.
func (a *Allowances) Take(key string, worth int) time.Duration {
	return a.requests.Take(key, worth, a.clock.Now())
}

// TakeFile counts a file of the dashboard, as Take does.
func (a *Allowances) TakeFile(host string) time.Duration {
	return a.files.Take(hostKey(host), 1, a.clock.Now())
}

// SpendReview counts a question to the API server on account of a known caller. It returns nil or a *LimitError.
func (a *Allowances) SpendReview(who user.Info) error { return a.spendReview(userKey(who)) }

func (a *Allowances) spendReview(key string) error {
	if wait := a.reviews.Take(key, 1, a.clock.Now()); wait > 0 {
		return &LimitError{RetryAfter: wait}
	}
	return nil
}

// Begin counts a request of a host until ended is called. It returns false if it is one too many.
func (a *Allowances) Begin(host string) (ended func(), ok bool) { return a.open.Take(host) }

// Open counts a stream until closed is called. It returns false if it is one too many.
func (a *Allowances) Open(key string) (closed func(), ok bool) {
	release, ok := a.streams.Take(key)
	if !ok {
		return nil, false
	}
	releaseOfAll, ok := a.allStreams.Take("")
	if !ok {
		release()
		return nil, false
	}
	return func() { release(); releaseOfAll() }, true
}

// Streams returns how many are open.
func (a *Allowances) Streams() int { return a.allStreams.Open("") }
