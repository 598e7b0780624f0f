package ipam

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"
)

func TestLedger(t *testing.T) {
	unknown := status.Error(codes.NotFound, "unknown")
	away := status.Error(codes.Unavailable, "away")
	const ip = "10.0.0.1"
	known := func(address string) *ledger {
		l := newLedger(10)
		l.lookup(ip)
		l.record(ip, l.next(ip), address, nil)
		return l
	}
	t.Run("a question is asked once", func(t *testing.T) {
		l := newLedger(10)
		_, known, ask := l.lookup(ip)
		assert.False(t, known)
		assert.True(t, ask)
		_, _, ask = l.lookup(ip)
		assert.False(t, ask)
	})
	t.Run("an answer to a forgotten question is dropped", func(t *testing.T) {
		l := newLedger(10)
		l.lookup(ip)
		asked := l.next(ip)
		l.forget(ip)
		l.lookup(ip)
		assert.Equal(t, outcome{}, l.record(ip, asked, "10.70.0.1", nil))
		_, isKnown, _ := l.lookup(ip)
		assert.False(t, isKnown)
		fresh := l.next(ip)
		assert.True(t, fresh.release, "the server answered the first")
		assert.Equal(t, outcome{changed: true, known: true}, l.record(ip, fresh, "10.70.0.2", nil))
	})
	t.Run("a check of a forgotten answer is dropped", func(t *testing.T) {
		l := known("10.70.0.1")
		check := l.next(ip)
		l.forget(ip)
		assert.Equal(t, outcome{}, l.record(ip, check, "10.70.0.1", nil))
		_, isKnown, _ := l.lookup(ip)
		assert.False(t, isKnown)
	})
	t.Run("an answer stays while the server is away", func(t *testing.T) {
		l := known("10.70.0.1")
		assert.Equal(t, outcome{known: true}, l.record(ip, l.next(ip), "", away))
		address, isKnown, _ := l.lookup(ip)
		assert.True(t, isKnown)
		assert.Equal(t, "10.70.0.1", address)
		assert.NoError(t, l.problem(ip))
	})
	t.Run("an answer goes when the server knows no such address", func(t *testing.T) {
		l := known("10.70.0.1")
		assert.Equal(t, outcome{changed: true, retry: 1}, l.record(ip, l.next(ip), "", unknown))
		_, isKnown, ask := l.lookup(ip)
		assert.False(t, isKnown)
		assert.False(t, ask, "it is being asked for")
		assert.Equal(t, unknown, l.problem(ip))
	})
	t.Run("another answer replaces the first", func(t *testing.T) {
		l := known("10.70.0.1")
		assert.Equal(t, outcome{changed: true, known: true}, l.record(ip, l.next(ip), "10.70.0.9", nil))
		address, _, _ := l.lookup(ip)
		assert.Equal(t, "10.70.0.9", address)
	})
	t.Run("a problem is reported once, and again when it is another", func(t *testing.T) {
		l := newLedger(10)
		l.lookup(ip)
		assert.True(t, l.record(ip, l.next(ip), "", away).changed)
		assert.Equal(t, outcome{retry: 2}, l.record(ip, l.next(ip), "", status.Error(codes.Unavailable, "still")))
		assert.True(t, l.record(ip, l.next(ip), "", unknown).changed)
		require.Equal(t, unknown, l.problem(ip))
		assert.True(t, l.record(ip, l.next(ip), "10.70.0.1", nil).changed)
		assert.NoError(t, l.problem(ip))
	})
	t.Run("what was never asked for is not released", func(t *testing.T) {
		l := newLedger(10)
		isKnown, release := l.forget(ip)
		assert.False(t, isKnown || release)
	})
}

// In any order of lookups, forgets, answers and failures: a known address was returned by the server after it was last
// forgotten, the cache is bounded, and every open question is queued or in flight.
func TestLedgerNeverKnowsWhatWasForgotten(t *testing.T) {
	const capacity = 3
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger(capacity)
		queued := map[string]bool{}
		epoch := map[string]int{}
		type flight struct {
			job
			ip    string
			epoch int
		}
		var inFlight []flight
		addresses := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		t.Repeat(map[string]func(*rapid.T){
			"lookup": func(t *rapid.T) {
				ip := addresses.Draw(t, "ip")
				address, known, ask := l.lookup(ip)
				if known && address != fmt.Sprintf("%s-%d", ip, epoch[ip]) {
					t.Fatalf("%s is known as %s in epoch %d", ip, address, epoch[ip])
				}
				queued[ip] = queued[ip] || ask
			},
			"forget": func(t *rapid.T) {
				ip := addresses.Draw(t, "ip")
				if _, release := l.forget(ip); release {
					queued[ip] = true
				}
				epoch[ip]++
			},
			"begin": func(t *rapid.T) {
				ip := addresses.Draw(t, "ip")
				for _, f := range inFlight {
					if f.ip == ip {
						t.Skip("one at a time, as the queue has it")
					}
				}
				queued[ip] = false
				inFlight = append(inFlight, flight{job: l.next(ip), ip: ip, epoch: epoch[ip]})
			},
			"end": func(t *rapid.T) {
				if len(inFlight) == 0 {
					t.Skip("nothing in flight")
				}
				f := inFlight[0]
				inFlight = inFlight[1:]
				var err error
				switch rapid.IntRange(0, 2).Draw(t, "result") {
				case 1:
					err = status.Error(codes.NotFound, "")
				case 2:
					err = errors.New("away")
				}
				result := l.record(f.ip, f.job, fmt.Sprintf("%s-%d", f.ip, f.epoch), err)
				queued[f.ip] = queued[f.ip] || result.retry > 0 || result.known
			},
			"": func(t *rapid.T) {
				if l.known.Len() > capacity {
					t.Fatalf("%d answers", l.known.Len())
				}
				for ip := range l.open {
					busy := queued[ip]
					for _, f := range inFlight {
						busy = busy || f.ip == ip
					}
					if !busy {
						t.Fatalf("%s is neither queued nor in flight", ip)
					}
				}
			},
		})
	})
}
