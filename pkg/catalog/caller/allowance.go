package caller

import (
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"github.com/capacitorset/liqo-broker-vk/pkg/auth"
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
	// timePerRequest is how long an answer may take that is worth one request.
	timePerRequest = 10 * time.Millisecond
	// strangersConnections is how many connections there may be on which no known caller has sent a request. If one more
	// arrives, one of the address with the most is closed. knownConnections are for those of known callers: each may have as
	// many as are free.
	strangersConnections = 3072
	knownConnections     = 1008
	// TotalConnections bounds the memory of all; it is larger than both together, so that one more is accepted.
	TotalConnections = 4096
	// explanations is how many explanations of a caller run or wait at once.
	explanations = 2
	// openRequests is how many requests there may be at once. One host has at most half of them.
	openRequests = 512
)

// Limits are what each caller may ask: a consumer with all its identities, other known callers by name, strangers by host.
type Limits struct {
	PerSecond float64
	Burst     int
	// Streams are how many each user or host may have open. TotalStreams are how many all of them may: each caller may have as many
	// as are free.
	Streams, TotalStreams int
	// Connections are how many a host may have open.
	Connections int
}

// Consumers knows which identities are those of a consumer.
type Consumers interface {
	Tenants
	// ConsumerOfNamespace returns the consumer from which a namespace was offloaded; "" if it was made here.
	ConsumerOfNamespace(namespace string) string
}

// Allowances limit the requests and streams of each caller.
type Allowances struct {
	clock     clock.PassiveClock
	consumers Consumers

	// A caller that has used up one of these has not used up another.
	requests, files, reviews *auth.Limiter

	// streams are by user, because a consumer may have many, allStreams by caller.
	streams, allStreams *httpserve.Shares
	// Connections are counted for their callers by Identifier.
	Connections *httpserve.Callers
	// explanations are those that run or wait, by caller.
	explanations *httpserve.Shares
	// open are requests that are not answered yet, by host.
	open *httpserve.Shares
}

// NewAllowances gives every caller the limits. consumers is nil where no caller acts for a consumer.
func NewAllowances(limits Limits, consumers Consumers, clk clock.PassiveClock) *Allowances {
	return &Allowances{
		clock: clk, consumers: consumers,
		streams: httpserve.NewShares(limits.Streams), allStreams: httpserve.NewFairShares(limits.TotalStreams),
		Connections:  httpserve.NewCallers(strangersConnections, httpserve.NewFairShares(knownConnections)),
		explanations: httpserve.NewShares(explanations),
		open:         httpserve.NewFairShares(openRequests),
		requests:     auth.NewLimiter(limits.PerSecond, limits.Burst, rememberedCallers),
		files:        auth.NewLimiter(limits.PerSecond*filesPerRequest, limits.Burst*filesPerRequest, rememberedCallers),
		reviews:      auth.NewLimiter(limits.PerSecond/requestsPerReview, reviewBurst, rememberedCallers),
	}
}

// Key returns the caller that a request is counted for.
func (a *Allowances) Key(who *Caller, host string) string {
	if who.Known() {
		return a.userKey(who.User)
	}
	return hostKey(host)
}

// userKey returns the consumer of a user, or the user's own name. Liqo signs a certificate for each ResourceSlice of a
// consumer, with its own name and the consumer as its organisation (authentication.CommonNameResourceSliceCSR), so names alone
// would multiply the allowance of a consumer.
func (a *Allowances) userKey(who user.Info) string {
	if consumer := a.consumerOf(who); consumer != "" {
		return "consumer " + consumer
	}
	return nameKey(who)
}

func nameKey(who user.Info) string { return "user " + who.GetName() }

func (a *Allowances) consumerOf(who user.Info) string {
	if a.consumers == nil {
		return ""
	}
	if namespace, _, err := serviceaccount.SplitUsername(who.GetName()); err == nil {
		if consumer, ok := a.consumers.TenantOf(namespace); ok {
			return consumer
		}
		return a.consumers.ConsumerOfNamespace(namespace)
	}
	for _, name := range append([]string{who.GetName()}, who.GetGroups()...) {
		if _, ok := a.consumers.TenantNamespace(name); ok {
			return name
		}
	}
	return ""
}

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
func (a *Allowances) SpendReview(who user.Info) error { return a.spendReview(a.userKey(who)) }

func (a *Allowances) spendReview(key string) error {
	if wait := a.reviews.Take(key, 1, a.clock.Now()); wait > 0 {
		return &LimitError{RetryAfter: wait}
	}
	return nil
}

// Begin counts a request of a host until ended is called. It returns false if it is one too many.
func (a *Allowances) Begin(host string) (ended func(), ok bool) { return a.open.Take(host) }

// Charge counts an answer after the time that it took: a request is worth timePerRequest. It may take more than the caller has
// left, which then waits for longer.
func (a *Allowances) Charge(key string, took time.Duration) {
	a.requests.Spend(key, int(took/timePerRequest), a.clock.Now())
}

// Explain counts an explanation until done is called. It returns false if it is one too many.
func (a *Allowances) Explain(key string) (done func(), ok bool) { return a.explanations.Take(key) }

// Open counts a stream until closed is called. It returns false if it is one too many: of the user, or of a consumer beside others.
func (a *Allowances) Open(who *Caller, host string) (closed func(), ok bool) {
	name := hostKey(host)
	if who.Known() {
		name = nameKey(who.User)
	}
	release, ok := a.streams.Take(name)
	if !ok {
		return nil, false
	}
	releaseOfAll, ok := a.allStreams.Take(a.Key(who, host))
	if !ok {
		release()
		return nil, false
	}
	return func() { release(); releaseOfAll() }, true
}

// Streams returns how many are open.
func (a *Allowances) Streams() int { return a.allStreams.All() }
