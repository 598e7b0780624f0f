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
	// rememberedCallers is the number of callers whose recent requests are remembered for their limits: the last ones.
	rememberedCallers = 8192
	// filesPerRequest is how many files of the dashboard count as one request: they cost little, and a page has thirty.
	filesPerRequest = 10
	// requestsPerReview and reviewBurst limit the reviews by the API server for a caller: a tenth of its requests, with
	// a burst that is enough to sign in, on the dashboard and elsewhere.
	requestsPerReview = 10
	reviewBurst       = 25
	// timePerRequest is the time to make an answer that counts as one request.
	timePerRequest = 10 * time.Millisecond
	// strangersConnections is the number of connections on which no known caller has sent a request. If one more
	// arrives, a connection of the address with the most is closed. knownConnections are the connections of known
	// callers: each caller may have as many as are free.
	strangersConnections = 3072
	knownConnections     = 1008
	// TotalConnections bounds the memory of all connections; it is larger than both together, so that one more is
	// accepted.
	TotalConnections = 4096
	// explanations is the number of explanations of a caller that may run or wait at once.
	explanations = 2
	// openRequests is the number of requests that may be open at once. One host has at most half of them.
	openRequests = 512
)

// Limits are the limits of each caller. A consumer with all its identities is one caller, other known callers are
// counted by name, strangers by host.
type Limits struct {
	PerSecond float64
	Burst     int
	// Streams is the number of streams that each user or host may have open. TotalStreams is the limit for all callers
	// together: each caller may have as many as are free.
	Streams, TotalStreams int
	// Connections is the number of connections that a host may have open.
	Connections int
}

// Consumers maps identities to consumers.
type Consumers interface {
	Tenants
	// ConsumerOfNamespace returns the consumer from which a namespace was offloaded; "" if it was made here.
	ConsumerOfNamespace(namespace string) string
}

// Allowances limit the requests and streams of each caller.
type Allowances struct {
	clock     clock.PassiveClock
	consumers Consumers

	// Each of these limits is independent of the others.
	requests, files, reviews *auth.Limiter

	// streams are by user, because a consumer may have many, allStreams by caller.
	streams, allStreams *httpserve.Shares
	// Connections are counted for their callers by Identifier.
	Connections *httpserve.Callers
	// explanations are the running and waiting explanations, by caller.
	explanations *httpserve.Shares
	// open are requests that are not answered yet, by host.
	open *httpserve.Shares
}

// NewAllowances gives every caller the limits. consumers is nil if no caller acts for a consumer.
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
// consumer, with its own name and the consumer as its organisation (authentication.CommonNameResourceSliceCSR), so
// names alone would multiply the allowance of a consumer.
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

// Take counts a request that costs worth requests, each at most a burst. It returns 0, or the time that the caller must
// wait if its allowance is used up; in that case nothing is counted.
func (a *Allowances) Take(key string, worth int) time.Duration {
	return a.requests.Take(key, worth, a.clock.Now())
}

// TakeFile counts a file of the dashboard, as Take does.
func (a *Allowances) TakeFile(host string) time.Duration {
	return a.files.Take(hostKey(host), 1, a.clock.Now())
}

// SpendReview counts a review by the API server for a known caller. It returns nil or a *LimitError.
func (a *Allowances) SpendReview(who user.Info) error { return a.spendReview(a.userKey(who)) }

func (a *Allowances) spendReview(key string) error {
	if wait := a.reviews.Take(key, 1, a.clock.Now()); wait > 0 {
		return &LimitError{RetryAfter: wait}
	}
	return nil
}

// Begin counts a request of a host until ended is called. It returns false if the host or the catalog is at its limit.
func (a *Allowances) Begin(host string) (ended func(), ok bool) { return a.open.Take(host) }

// Charge counts an answer by the time that it took: timePerRequest counts as one request. It may exceed the caller's
// allowance; the caller then waits for longer.
func (a *Allowances) Charge(key string, took time.Duration) {
	a.requests.Spend(key, int(took/timePerRequest), a.clock.Now())
}

// Explain counts an explanation until done is called. It returns false if the caller is at its limit.
func (a *Allowances) Explain(key string) (done func(), ok bool) { return a.explanations.Take(key) }

// Open counts a stream until closed is called. It returns false if the user, or its consumer together with the other
// callers, is at its limit.
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

// Streams returns the number of open streams.
func (a *Allowances) Streams() int { return a.allStreams.All() }
