package histories

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
)

// errKilled is the error of every call of a killed process.
var errKilled = errors.New("the process was killed")

// process is a program that can be paused, resumed and killed. Its goroutines stop at their next call.
type process struct {
	name string
	ctx  context.Context
	kill context.CancelCauseFunc
	// cache is the broker's cache. interrupter is notified of the broker's writes; nil if there is none.
	cache       *mirror
	interrupter *interrupter
	// leads is true while the broker is the leader.
	leads atomic.Bool
	// terminating ends when the process is asked to terminate gracefully.
	terminating context.Context
	terminate   context.CancelFunc

	mu sync.Mutex
	// resumed is closed when the process resumes; nil while it runs.
	resumed chan struct{}
	// timers are not used at the moment.
	timers []*time.Timer
}

func newProcess(ctx context.Context, name string) *process {
	p := &process{name: name}
	p.ctx, p.kill = context.WithCancelCause(ctx)
	p.terminating, p.terminate = context.WithCancel(p.ctx)
	return p
}

func (p *process) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.resumed == nil {
		p.resumed = make(chan struct{})
	}
}

func (p *process) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.resumed != nil {
		close(p.resumed)
		p.resumed = nil
	}
}

// gate blocks while the process is paused. It returns an error if the process was killed.
func (p *process) gate() error {
	for {
		p.mu.Lock()
		resumed := p.resumed
		p.mu.Unlock()
		if p.ctx.Err() != nil {
			return errKilled
		}
		if resumed == nil {
			return nil
		}
		select {
		case <-resumed:
		case <-p.ctx.Done():
		}
	}
}

// sleep returns false if ctx or the process ended before the time was over.
func (p *process) sleep(ctx context.Context, d time.Duration) bool {
	timer := p.timer(d)
	defer p.idle(timer)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-p.ctx.Done():
	}
	return false
}

// timer returns a timer that the caller hands back to idle.
func (p *process) timer(d time.Duration) *time.Timer {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.timers) - 1
	if last < 0 {
		return time.NewTimer(d)
	}
	timer := p.timers[last]
	p.timers = p.timers[:last]
	timer.Reset(d)
	return timer
}

// idle keeps a timer for the next use.
func (p *process) idle(timer *time.Timer) {
	timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timers = append(p.timers, timer)
}

// sleepUntil returns false if ctx or the process ended before a time, and otherwise when the process is not paused. It
// does not yield if the time is past.
func (p *process) sleepUntil(ctx context.Context, until time.Time) bool {
	if d := time.Until(until); d > 0 && !p.sleep(ctx, d) {
		return false
	}
	return p.gate() == nil
}

// errRefused is the error of a connection that no server accepts.
var errRefused = errors.New("connect: connection refused")

// weather is the current state of the network and the API server of a cluster.
type weather struct {
	seed uint64

	mu sync.Mutex
	// refuses and hangs count the faults that make the server reject connections, or not answer. Guarded by mu, like
	// all fields below.
	refuses, hangs int
	// listless counts the faults that make it not answer lists.
	listless int
	// answerLost is the percentage of writes that take effect but whose answer is lost.
	answerLost int
	// lags counts the faults that delay watch events.
	lags int
	// denials are the errors that the API server returns instead of its normal answers.
	denials []denial
	// perItem is how long a list takes for each item. crowd is how many further items a list has to read.
	perItem time.Duration
	crowd   int
	// answers records the answers of the API server.
	answers []judge.Answer
	// counts is how often each request was made, so that draws do not depend on other goroutines.
	counts map[string]uint64
	// changed is closed at the next change.
	changed chan struct{}
}

func newWeather(seed uint64) *weather {
	return &weather{seed: seed, counts: map[string]uint64{}, changed: make(chan struct{})}
}

// change changes the weather.
func (w *weather) change(to func(*weather)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	to(w)
	close(w.changed)
	w.changed = make(chan struct{})
}

// draw returns a number that depends on the seed, the request, and how often it was made.
func (w *weather) draw(request string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[request]++
	n := fnv64a(fnvOffset, request)
	n = fnv64a(n, strconv.FormatUint(w.counts[request]+w.seed<<20, 10))
	n ^= n >> 33 // FNV's upper bits hardly depend on the last bytes.
	n *= 0xff51afd7ed558ccd
	return n ^ n>>33
}

// fnvOffset is the hash of an empty text.
const fnvOffset = 14695981039346656037

// fnv64a continues the hash of a text, as hash/fnv does, which allocates memory.
func fnv64a(hash uint64, text string) uint64 {
	for i := range len(text) {
		hash = (hash ^ uint64(text[i])) * 1099511628211
	}
	return hash
}

// shuffle puts n things into a random order.
func (w *weather) shuffle(what string, n int, swap func(a, b int)) {
	rand.New(rand.NewPCG(w.draw(what), w.seed)).Shuffle(n, swap)
}

// lagNow returns the current delay of a watch event.
func (w *weather) lagNow(request string) time.Duration {
	n := w.draw(request)
	w.mu.Lock()
	defer w.mu.Unlock()
	late := time.Duration(n % 20_000_000) // Up to 20 ms, in nanoseconds.
	if w.lags > 0 {
		late += 5 * time.Second
	}
	return late
}

// accepted blocks until the server answers; lists is true for a list request. It returns an error if the server rejects
// the connection, or if ctx or the process ends.
func (w *weather) accepted(ctx context.Context, p *process, lists bool) error {
	for {
		w.mu.Lock()
		refuses, hangs, changed := w.refuses > 0, w.hangs > 0 || lists && w.listless > 0, w.changed
		w.mu.Unlock()
		switch {
		case refuses:
			p.sleep(ctx, time.Millisecond)
			return errRefused
		case !hangs:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-p.ctx.Done():
			return errKilled
		}
	}
}

// denial is the status code that an API server returns for requests whose names begin with a prefix.
type denial struct {
	request string
	code    int
}

// deny starts or stops answering with a code.
func (w *weather) deny(d denial, begins bool) {
	w.change(func(w *weather) {
		if begins {
			w.denials = append(w.denials, d)
		} else if i := slices.Index(w.denials, d); i >= 0 {
			w.denials = slices.Delete(w.denials, i, i+1)
		}
	})
}

// answered returns the error that the API server answers instead of handling a request, and records the answer.
func (w *weather) answered(by, request string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	code := http.StatusOK
	for _, d := range w.denials {
		if strings.HasPrefix(request, d.request) {
			code = d.code
		}
	}
	w.answers = append(w.answers, judge.Answer{At: time.Now(), By: by, Code: code, Probe: request == "GET "+readyz})
	if code == http.StatusOK {
		return nil
	}
	return kerrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", request, 0, true)
}

// listTime is how long a list of a number of items takes.
func (w *weather) listTime(items int) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(items) * w.perItem
}

// request sends a request of a process to a server. It takes a while, may not arrive, and its answer may be lost.
func (p *process) request(ctx context.Context, w *weather, name string, writes bool, do func() error) error {
	if err := p.gate(); err != nil {
		return err
	}
	chance := w.draw(p.name + " " + name)
	if !p.sleep(ctx, time.Duration(500_000+chance%4_000_000)) {
		return context.Cause(ctx)
	}
	if err := w.accepted(ctx, p, strings.HasPrefix(name, "list ")); err != nil {
		return err
	}
	if p.ctx.Err() != nil {
		return errKilled
	}
	err := w.answered(p.name, name)
	if err == nil {
		if writes && p.interrupter != nil {
			err = p.interrupter.wrote(p, name, false)
		}
		if err == nil {
			err = do()
		}
		if writes && p.interrupter != nil {
			_ = p.interrupter.wrote(p, name, true)
		}
	}
	if !p.sleep(ctx, time.Duration(500_000+chance>>32%4_000_000)) && err == nil {
		return context.DeadlineExceeded
	}
	if gone := p.gate(); gone != nil {
		return gone
	}
	w.mu.Lock()
	lost := writes && err == nil && int(chance>>20%100) < w.answerLost
	w.mu.Unlock()
	if lost {
		return context.DeadlineExceeded
	}
	return err
}
