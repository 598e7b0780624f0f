package histories

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
)

// quiet is how long nothing may be written once everything has settled.
const quiet = 10 * time.Minute

// patterns returns the patterns in which controllers fail, after Sieve (Sun et al., Automatic Reliability Testing for
// Cluster Management Controllers, OSDI 2022): a controller that acts on stale state, one that is restarted between two
// writes, and one that misses an intermediate state. We add one whose write is rejected because another client has
// changed the object.
func patterns() map[string]interruption {
	return map[string]interruption{
		"its watches are 30 s late": {fault: "home's watches lag", lasts: 30 * time.Second, before: func(p *process) {
			p.cache.hold(time.Now().Add(30 * time.Second))
		}},
		"another client has written before it": {refuses: true},
		"it is restarted":                      {fault: "leader is killed", after: func(p *process) { p.kill(errKilled) }},
		"it does not see what is next": {fault: "home's watches lag", lasts: 10 * time.Second, before: func(p *process) {
			p.cache.drop(time.Now().Add(10 * time.Second))
		}},
	}
}

// interruption defines what happens to a broker before or after one of its writes, and the kind of fault that it is for
// the judge.
type interruption struct {
	fault         string
	lasts         time.Duration
	before, after func(*process)
	// refuses makes the API server reject the write with a conflict, as it does for an update or a patch with an
	// outdated resourceVersion.
	refuses bool
}

// interrupter interrupts a broker at one of its writes, and counts all writes.
type interrupter struct {
	interruption
	at int

	mu      sync.Mutex
	writes  []string
	happens judge.Fault
}

// wrote is called before and after each write of a broker takes effect. If it returns an error, the write has no
// effect.
func (i *interrupter) wrote(p *process, request string, done bool) error {
	if strings.Contains(request, "/leases") {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !done {
		if i.writes = append(i.writes, request); len(i.writes) == i.at {
			i.happens = judge.Fault{Kind: i.fault, From: time.Now(), Until: time.Now().Add(i.lasts)}
			if i.before != nil {
				i.before(p)
			}
			verb, _, _ := strings.Cut(strings.ToLower(request), " ")
			if i.refuses && slices.Contains([]string{"patch", "update", "put"}, verb) {
				return kerrors.NewConflict(schema.GroupResource{}, request, errors.New("another client has changed it"))
			}
		}
		return nil
	}
	if len(i.writes) == i.at && i.after != nil {
		i.after(p)
	}
	return nil
}

// count returns how many writes there were.
func (i *interrupter) count() int {
	if i == nil {
		return 0
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.writes)
}
