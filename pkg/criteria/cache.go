package criteria

import (
	"container/list"
	"sync"
)

// Cache keeps the programs compiled last, and the errors of those that do not compile, by their text. It is safe for
// concurrent use.
type Cache struct {
	// size is how many bytes all entries may take, and used how many they take.
	size, used int

	mutex sync.Mutex
	// used, entries and order are the mutex's; order has the one used last in front.
	entries map[cacheKey]*list.Element
	order   *list.List
}

type cacheKey struct {
	text    string
	isScore bool
}

type cacheEntry struct {
	key     cacheKey
	program *Program
	err     error
}

// bytes is what an entry takes, measured by TestCacheTakesWhatItCounts.
func (e *cacheEntry) bytes() int {
	const fixed, perByte, perInstruction = 64 << 10, 100, 200
	if e.program == nil {
		return 2<<10 + 4*len(e.key.text)
	}
	return fixed + perByte*len(e.key.text) + perInstruction*e.program.instructions
}

// NewCache returns a Cache that takes at most so many bytes, about.
func NewCache(bytes int) *Cache {
	return &Cache{size: bytes, entries: make(map[cacheKey]*list.Element), order: list.New()}
}

// Filter returns what NewFilter does.
func (c *Cache) Filter(expression string) (*Program, error) {
	return c.program(cacheKey{text: expression}, NewFilter)
}

// Score returns what NewScore does.
func (c *Cache) Score(expression string) (*Program, error) {
	return c.program(cacheKey{text: expression, isScore: true}, NewScore)
}

func (c *Cache) program(key cacheKey, compile func(expression string) (*Program, error)) (*Program, error) {
	if len(key.text) > MaxLength {
		return compile(key.text) // An error without much ado, and not worth its memory.
	}
	if entry := c.find(key); entry != nil {
		return entry.program, entry.err
	}
	// Two callers may compile the same text at the same time; the others do not wait for them.
	program, err := compile(key.text)
	c.add(&cacheEntry{key: key, program: program, err: err})
	return program, err
}

func (c *Cache) find(key cacheKey) *cacheEntry {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	element := c.entries[key]
	if element == nil {
		return nil
	}
	c.order.MoveToFront(element)
	return element.Value.(*cacheEntry)
}

func (c *Cache) add(entry *cacheEntry) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.entries[entry.key] != nil {
		return
	}
	c.entries[entry.key] = c.order.PushFront(entry)
	c.used += entry.bytes()
	for c.used > c.size {
		oldest := c.order.Remove(c.order.Back()).(*cacheEntry)
		c.used -= oldest.bytes()
		delete(c.entries, oldest.key)
	}
}
