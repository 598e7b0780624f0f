package cel

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel/celtest"
)

// seeds are expressions that random inputs start from: hostile ones and valid ones, in a stable order.
func seeds() []string {
	all := []string{
		"provider.attributes['region'] == 'eu' && provider.resources.free['cpu'] > 2.0 * pod.requests[?'cpu'].orValue(0.0)",
		"has(provider.kpis.uptime24h) ? 100.0 * provider.kpis.uptime24h : 50.0",
		"provider.labels.exists(k, v, k.matches('^a+$') && v.find('[0-9]+') != '') || quantity('1Gi').isLessThan(quantity('2Gi'))",
		"semver(provider.labels.version).isGreaterThan(semver('1.34.0')) && cidr('10.0.0.0/8').containsIP(ip('10.0.0.1'))",
		"[1, 2, 3].map(x, x * 2).filter(x, x > 2).sum() == 10 && 'a,b'.split(',').join('') in ['ab']",
		"{'a': 1, 'b': 2}.exists_one(k, k == 'a') ? optional.of('x').value() == 'x' : !isQuantity(pod.name)",
	}
	for _, expression := range hostile() {
		all = append(all, expression)
	}
	slices.Sort(all)
	return all
}

// try compiles an expression and evaluates it. It returns an error for a failure that is not an *Error.
func try(v *Variables, expression string, isScore bool) (compiles bool, err error) {
	p, err := compile(expression, isScore)
	compiles = err == nil
	if compiles {
		v.spent = 0
		if _, err = p.eval(v); err != nil {
			err = p.fail(err)
		}
	}
	if fault := (&Error{}); err != nil && !errors.As(err, &fault) {
		return compiles, err
	}
	return compiles, nil
}

// FuzzExpressions compiles and evaluates anything, and expects an *Error at worst. Go's fuzzer goes for new paths
// through the code, about 1,000 inputs a second.
func FuzzExpressions(f *testing.F) {
	for _, expression := range seeds() {
		f.Add(expression)
	}
	v := variables()
	f.Fuzz(func(t *testing.T, expression string) {
		for _, isScore := range []bool{false, true} {
			if _, err := try(v, expression, isScore); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// tokens are the words of expressions: texts, names, numbers and signs.
var tokens = regexp.MustCompile(`'(?:[^'\\\\]|\\\\.)*'|[A-Za-z_][A-Za-z_0-9]*|[0-9]+(?:\.[0-9]+)?|[&|=<>!]+|\s+|.`)

// mutator makes expressions: by the grammar of celtest, and from those and the seeds by cutting, copying and exchanging
// words and bytes.
type mutator struct {
	seeds [][]string
	words []string
}

func newMutator() *mutator {
	m := &mutator{}
	for _, seed := range seeds() {
		words := tokens.FindAllString(seed, -1)
		m.seeds = append(m.seeds, words)
		m.words = append(m.words, words[:min(len(words), 60)]...)
	}
	slices.Sort(m.words)
	m.words = slices.Compact(m.words)
	return m
}

// input returns an expression; the same numbers return the same.
func (m *mutator) input(seed, number uint64) (expression string, isScore bool) {
	random := celtest.Generator{Rand: rand.New(rand.NewPCG(seed, number))}
	isScore = random.IntN(2) == 0
	generated := func() string {
		if isScore {
			return random.Score(1 + random.IntN(3)).String()
		}
		return random.Filter(1 + random.IntN(3)).String()
	}
	switch random.IntN(4) {
	case 0:
		words := m.seeds[random.IntN(len(m.seeds))]
		if most := 10 << random.IntN(6); len(words) > most { // A fault found by a long seed is found by a part of it.
			first := random.IntN(len(words) - most)
			words = words[first : first+most]
		}
		return m.mutated(random, slices.Clone(words)), isScore
	case 1:
		return m.mutated(random, tokens.FindAllString(generated(), -1)), isScore
	default:
		return generated(), isScore
	}
}

func (m *mutator) mutated(random celtest.Generator, words []string) string {
	for range 1 + random.IntN(3) {
		at := random.IntN(len(words) + 1)
		end := min(at+random.IntN(8), len(words))
		word := m.words[random.IntN(len(m.words))]
		switch random.IntN(5) {
		case 0:
			words = slices.Delete(words, at, end)
		case 1:
			words = slices.Insert(words, at, slices.Clone(words[at:end])...)
		case 2:
			words = slices.Insert(words, at, word)
		case 3:
			words = slices.Concat(words[:at], []string{word}, words[min(at+1, len(words)):])
		case 4:
			words = slices.Concat(words[:at], []string{"("}, words[at:end], []string{")"}, words[end:])
		}
	}
	text := []byte(strings.Join(words, ""))
	if len(text) > 0 && random.IntN(4) == 0 {
		text[random.IntN(len(text))] = byte(random.IntN(256))
	}
	return string(text)
}

// tried remembers the recent inputs, by their hashes: nearly half of them, the short ones, come again. Two inputs with
// the same hash of 64 bits would count as one.
type tried struct {
	seed   maphash.Seed
	hashes []atomic.Uint64
}

// again reports whether the input was tried before.
func (t *tried) again(expression string, isScore bool) bool {
	hash := maphash.Comparable(t.seed, struct {
		expression string
		isScore    bool
	}{expression, isScore})
	return t.hashes[hash%uint64(len(t.hashes))].Swap(hash) == hash
}

// TestMutatedExpressions tries FUZZ_INPUTS expressions (5,000), from number FUZZ_FROM (0) on, and expects the same of
// each as FuzzExpressions. It does not observe which code runs, and so makes more inputs a second.
func TestMutatedExpressions(t *testing.T) {
	number := func(name string, otherwise uint64) uint64 {
		text, is := os.LookupEnv(name)
		if !is {
			return otherwise
		}
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, name)
		return n
	}
	const seed, batch = 1, 1000
	first, inputs := number("FUZZ_FROM", 0), number("FUZZ_INPUTS", 5_000)
	m := newMutator()
	inputsBefore := tried{maphash.MakeSeed(), make([]atomic.Uint64, 1<<25)}
	var next, different, compiled atomic.Uint64
	var reported atomic.Int64
	began := time.Now()
	var workers errgroup.Group
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() error {
			v := variables()
			for {
				from := next.Add(batch) - batch
				if from >= inputs {
					return nil
				}
				for n := from; n < min(from+batch, inputs); n++ {
					expression, isScore := m.input(seed, first+n)
					if inputsBefore.again(expression, isScore) {
						continue
					}
					different.Add(1)
					compiles, err := tryAndRecover(v, expression, isScore)
					if compiles {
						compiled.Add(1)
					}
					if err != nil {
						return fmt.Errorf("input %d, %q (score: %t): %w", first+n, expression, isScore, err)
					}
				}
				if minute := int64(time.Since(began) / time.Minute); reported.Swap(minute) != minute {
					t.Logf("%d inputs of %d after %s", from+batch, inputs, time.Since(began).Round(time.Second))
				}
			}
		})
	}
	require.NoError(t, workers.Wait())
	t.Logf("%d inputs from number %d, %d of them for the first time, of which %d compile, in %s",
		inputs, first, different.Load(), compiled.Load(), time.Since(began).Round(time.Second))
}

func tryAndRecover(v *Variables, expression string, isScore bool) (compiles bool, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%v\n%s", fault, debug.Stack())
		}
	}()
	return try(v, expression, isScore)
}
