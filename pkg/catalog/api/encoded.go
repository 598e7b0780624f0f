package api

import (
	"encoding/json"
	"sync"
)

// Encoded is the JSON of one value, made when it is first asked for: all streams that show the value share it.
type Encoded struct {
	once sync.Once
	text []byte
	err  error
}

// JSON returns the JSON of the value, which is the same in every call. A nil Encoded caches nothing. The caller does
// not change the result.
func (e *Encoded) JSON(value any) ([]byte, error) {
	if e == nil {
		return json.Marshal(value)
	}
	e.once.Do(func() { e.text, e.err = json.Marshal(value) })
	return e.text, e.err
}
