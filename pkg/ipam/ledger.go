package ipam

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/lru"
)

// ledger stores the answers and the open questions of a Client. It uses no clock and no connection, and is not safe for concurrent use.
type ledger struct {
	// known are answers, at most as many as its capacity: the least recently used one is evicted first.
	known *lru.Cache // By address, *answer.
	// open are the questions without an answer. The caller bounds them: it forgets the addresses of deleted pods.
	open map[string]*question
	// released are addresses whose mapping the server is asked to release, on a best-effort basis.
	released map[string]struct{}
}

type answer struct{ address string }

// question is one lookup of an address. After the server's answer, the worker checks that it is still the current
// question: after a forget, the same address is another question.
type question struct {
	// problem is the reason why there is no answer; nil until the first attempt has ended.
	problem error
	// tries is the number of attempts that have ended.
	tries int
}

// job is the work for an address. At most one of question and refresh is set.
type job struct {
	// release makes the worker ask the server first to release its last answer.
	release  bool
	question *question
	// refresh is an answer that must be checked.
	refresh *answer
}

// outcome is the result of an attempt.
type outcome struct {
	// changed is true if lookup or problem now return something else.
	changed bool
	// retry is the number of attempts after which the question is still open; 0 if it is not open.
	retry int
	// known is true if the address has an answer, to be refreshed later.
	known bool
}

func newLedger(capacity int) *ledger {
	return &ledger{known: lru.New(capacity), open: map[string]*question{}, released: map[string]struct{}{}}
}

// lookup returns the answer; ask is true if the question is new and the caller must enqueue it.
func (l *ledger) lookup(ip string) (address string, known, ask bool) {
	if found := l.answer(ip); found != nil {
		return found.address, true, false
	}
	if _, asked := l.open[ip]; asked {
		return "", false, false
	}
	l.open[ip] = &question{}
	return "", false, true
}

func (l *ledger) answer(ip string) *answer {
	found, ok := l.known.Get(ip)
	if !ok {
		return nil
	}
	return found.(*answer) // The cache has no other type.
}

func (l *ledger) problem(ip string) error {
	if asked, ok := l.open[ip]; ok {
		return asked.problem
	}
	return nil
}

// forget drops all data about an address. known reports whether there was an answer. release reports whether the server
// may have a mapping, which the caller must release.
func (l *ledger) forget(ip string) (known, release bool) {
	known = l.answer(ip) != nil
	_, asked := l.open[ip]
	l.known.Remove(ip)
	delete(l.open, ip)
	if !known && !asked {
		return false, false
	}
	l.released[ip] = struct{}{}
	return known, true
}

// next returns the work for an address.
func (l *ledger) next(ip string) job {
	_, release := l.released[ip]
	delete(l.released, ip)
	return job{release: release, question: l.open[ip], refresh: l.answer(ip)}
}

// record records the server's answer to a job. The answer is dropped if the address was forgotten in the meantime.
func (l *ledger) record(ip string, j job, address string, err error) outcome {
	switch {
	case j.question != nil && l.open[ip] == j.question:
		return l.recordLookup(ip, j.question, address, err)
	case j.refresh != nil && l.answer(ip) == j.refresh:
		return l.recordRefresh(ip, j.refresh, address, err)
	}
	return outcome{}
}

func (l *ledger) recordLookup(ip string, asked *question, address string, err error) outcome {
	if err != nil {
		// The message of the same problem may vary, for example with the port of a connection.
		changed := asked.problem == nil || status.Code(asked.problem) != status.Code(err)
		asked.problem = err
		asked.tries++
		return outcome{changed: changed, retry: asked.tries}
	}
	delete(l.open, ip)
	l.known.Add(ip, &answer{address: address})
	return outcome{changed: true, known: true}
}

// recordRefresh keeps the previous answer when the request fails, unless the server does not know the address.
func (l *ledger) recordRefresh(ip string, was *answer, address string, err error) outcome {
	switch {
	case err == nil && address == was.address:
		return outcome{known: true}
	case err == nil:
		l.known.Add(ip, &answer{address: address})
		return outcome{changed: true, known: true}
	case status.Code(err) == codes.NotFound:
		l.known.Remove(ip)
		l.open[ip] = &question{problem: err, tries: 1}
		return outcome{changed: true, retry: 1}
	}
	return outcome{known: true}
}
