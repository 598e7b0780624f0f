package criteria

import (
	"container/list"
	"sync"
)

// Cache keeps the programs compiled last, and the errors of those that do not compile, by their text. It is safe for
// concurrent use.
type Cache struct {
	size int

	mutex sync.Mutex
	// entries and order are the mutex's; order has the one used last in front.
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

// NewCache returns a Cache for so many programs, at least one.
func NewCache(size int) *Cache {
	return &Cache{size: max(size, 1), entries: make(map[cacheKey]*list.Element), order: list.New()}
}

// Filter returns what NewFilter does.
func (c *Cache) Filter(expression string) (*Program, error) {
	return c.program(cacheKey{text: expression})
}

// Score returns what NewScore does.
func (c *Cache) Score(expression string) (*Program, error) {
	return c.program(cacheKey{text: expression, isScore: true})
}

func (c *Cache) program(key cacheKey) (*Program, error) {
	if len(key.text) > MaxLength {
		return compile(key.text, key.isScore) // An error without much ado, and not worth its memory.
	}
	if entry := c.find(key); entry != nil {
		return entry.program, entry.err
	}
	// Two callers may compile the same text at the same time; the others do not wait for them.
	program, err := compile(key.text, key.isScore)
	c.keep(&cacheEntry{key: key, program: program, err: err})
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

func (c *Cache) keep(entry *cacheEntry) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.entries[entry.key] != nil {
		return
	}
	c.entries[entry.key] = c.order.PushFront(entry)
	for c.order.Len() > c.size {
		oldest := c.order.Back()
		c.order.Remove(oldest)
		delete(c.entries, oldest.Value.(*cacheEntry).key)
	}
}
