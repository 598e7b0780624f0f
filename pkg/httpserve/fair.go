package httpserve

import "sync"

// Fair shares a number of something among keys: each may have as many as are free. Thus one key has at most half of all, two
// have a third each, and however many they are, the next one finds some.
type Fair struct {
	mu sync.Mutex
	// free is how many there are, open how many each key has; guarded by mu.
	free int
	open map[string]int
}

// NewFair returns a Fair of so many.
func NewFair(all int) *Fair { return &Fair{free: all, open: map[string]int{}} }

// Take counts one for a key until release is called. It returns false if the key has as many as are free.
func (f *Fair) Take(key string) (release func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[key] >= f.free {
		return nil, false
	}
	f.free--
	f.open[key]++
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.free++
		if f.open[key]--; f.open[key] == 0 {
			delete(f.open, key)
		}
	}), true
}
