package ipam

import (
	"github.com/golang/groupcache/lru"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ledger is what a Client knows and what it wants to know. It decides only: it has no lock, no clock and no connection.
type ledger struct {
	// known are answers, at most as many as its capacity: the one least recently asked for goes first.
	known *lru.Cache // By address, *answer.
	// open are the questions without an answer. The caller bounds them: it forgets the addresses of pods that are gone.
	open map[string]*question
	// released are addresses that the server is to be told about, best effort.
	released map[string]struct{}
}

type answer struct{ address string }

// question is one wish to know an address. Whoever asks the server compares it afterwards: after a forget, the same
// address is another question.
type question struct {
	// problem is why there is no answer; nil before the first attempt has ended.
	problem error
}

// job is what there is to do about an address. At most one of question and refresh is set.
type job struct {
	// release tells the server first that its last answer is not needed any more.
	release  bool
	question *question
	// refresh is an answer to be checked.
	refresh *answer
}

// outcome is what follows from an attempt.
type outcome struct {
	// changed says that lookup or problem would now say something else.
	changed bool
	// retry says that the question is still open.
	retry bool
	// known says that the address has an answer, to be checked after a while.
	known bool
}

func newLedger(capacity int) *ledger {
	return &ledger{known: lru.New(capacity), open: map[string]*question{}, released: map[string]struct{}{}}
}

// lookup returns the answer; ask says that the question is new and somebody must see to it.
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
	return found.(*answer) //nolint:forcetypeassert // Nothing else is put in.
}

func (l *ledger) problem(ip string) error {
	if asked, ok := l.open[ip]; ok {
		return asked.problem
	}
	return nil
}

// forget drops whatever there is about an address; it reports whether there was an answer, and whether the server may
// hold a mapping, which somebody must see to releasing.
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

// next takes what there is to do about an address.
func (l *ledger) next(ip string) job {
	_, release := l.released[ip]
	delete(l.released, ip)
	return job{release: release, question: l.open[ip], refresh: l.answer(ip)}
}

// settle takes the server's answer to a job in. What has been forgotten in between changes nothing.
func (l *ledger) settle(ip string, j job, address string, err error) outcome {
	switch {
	case j.question != nil && l.open[ip] == j.question:
		return l.settleQuestion(ip, j.question, address, err)
	case j.refresh != nil && l.answer(ip) == j.refresh:
		return l.settleRefresh(ip, j.refresh, address, err)
	}
	return outcome{}
}

func (l *ledger) settleQuestion(ip string, asked *question, address string, err error) outcome {
	if err != nil {
		// The words of one problem vary, with the port of a connection for example.
		changed := asked.problem == nil || status.Code(asked.problem) != status.Code(err)
		asked.problem = err
		return outcome{changed: changed, retry: true}
	}
	delete(l.open, ip)
	l.known.Add(ip, &answer{address: address})
	return outcome{changed: true, known: true}
}

// settleRefresh keeps an answer when the server does not give one, unless it says that there is no such address.
func (l *ledger) settleRefresh(ip string, was *answer, address string, err error) outcome {
	switch {
	case err == nil && address == was.address:
		return outcome{known: true}
	case err == nil:
		l.known.Add(ip, &answer{address: address})
		return outcome{changed: true, known: true}
	case status.Code(err) == codes.NotFound:
		l.known.Remove(ip)
		l.open[ip] = &question{problem: err}
		return outcome{changed: true, retry: true}
	}
	return outcome{known: true}
}
