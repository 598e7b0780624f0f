package cel

import (
	"container/list"
	"crypto/sha256"
	"errors"
	"sync"
)

// Cache keeps the most recently used programs by their text, and the errors of texts that do not compile by the hash of
// the text: these are small, so more of them are kept than one tenant writes. It is safe for concurrent use.
type Cache struct {
	mutex sync.Mutex
	// programs and refused are guarded by the mutex.
	programs, refused lru
}

// lru keeps the most recently used entries.
type lru struct {
	// size is the limit for the bytes of all entries, and used is their present sum.
	size, used int
	entries    map[cacheKey]*list.Element
	// order has the one used last in front.
	order *list.List
}

type cacheKey struct {
	// text is the expression, or its hash.
	text    string
	isScore bool
}

type cacheEntry struct {
	key     cacheKey
	program *Program
	err     error
	bytes   int
}

// bytesOf is the memory of a program, measured by TestCacheTakesWhatItCounts.
func bytesOf(text string, p *Program) int {
	const fixed, perByte, perInstruction = 64 << 10, 100, 200
	return fixed + perByte*len(text) + perInstruction*p.instructions
}

// refusedShare limits the bytes of the errors, in addition to the programs', to one part in refusedShare.
const refusedShare = 8

// NewCache returns a Cache whose programs take at most so many bytes, about.
func NewCache(bytes int) *Cache {
	return &Cache{programs: newLRU(bytes), refused: newLRU(bytes / refusedShare)}
}

func newLRU(bytes int) lru {
	return lru{size: bytes, entries: map[cacheKey]*list.Element{}, order: list.New()}
}

// Filter returns the same as NewFilter.
func (c *Cache) Filter(expression string) (*Program, error) {
	return c.program(cacheKey{text: expression}, NewFilter)
}

// Score returns the same as NewScore.
func (c *Cache) Score(expression string) (*Program, error) {
	return c.program(cacheKey{text: expression, isScore: true}, NewScore)
}

// HasFilter reports whether Filter need not compile the expression.
func (c *Cache) HasFilter(expression string) bool {
	return len(expression) > MaxLength || c.find(cacheKey{text: expression}) != nil
}

func (c *Cache) program(key cacheKey, compile func(expression string) (*Program, error)) (*Program, error) {
	if len(key.text) > MaxLength {
		return compile(key.text) // A cheap error, not worth its memory.
	}
	if entry := c.find(key); entry != nil {
		return entry.program, entry.err
	}
	// Two callers may compile the same text at the same time; the others do not wait for them.
	program, err := compile(key.text)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err != nil {
		c.refused.add(refusedEntry(key, err))
	} else {
		c.programs.add(&cacheEntry{key: key, program: program, bytes: bytesOf(key.text, program)})
	}
	return program, err
}

// refusedEntry keeps an error without the whole expression.
func refusedEntry(key cacheKey, err error) *cacheEntry {
	const fixed = 1 << 10
	entry := &cacheEntry{key: hashed(key), err: err, bytes: fixed + len(err.Error())}
	if fault := (&Error{}); errors.As(err, &fault) {
		fault.Expression = string([]byte(shorten(fault.Expression, maxQuoted)))
		entry.bytes += len(fault.Expression) + len(fault.Problem)
	}
	return entry
}

func hashed(key cacheKey) cacheKey {
	sum := sha256.Sum256([]byte(key.text))
	return cacheKey{text: string(sum[:]), isScore: key.isScore}
}

func (c *Cache) find(key cacheKey) *cacheEntry {
	hash := hashed(key)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if entry := c.programs.find(key); entry != nil {
		return entry
	}
	return c.refused.find(hash)
}

func (l *lru) find(key cacheKey) *cacheEntry {
	element := l.entries[key]
	if element == nil {
		return nil
	}
	l.order.MoveToFront(element)
	entry, _ := element.Value.(*cacheEntry)
	return entry
}

func (l *lru) add(entry *cacheEntry) {
	if l.entries[entry.key] != nil {
		return
	}
	l.entries[entry.key] = l.order.PushFront(entry)
	l.used += entry.bytes
	for l.used > l.size {
		oldest, _ := l.order.Remove(l.order.Back()).(*cacheEntry)
		l.used -= oldest.bytes
		delete(l.entries, oldest.key)
	}
}
