package status

import "encoding/json"

// List is an array of an answer: [] where it is empty, never null, which scripts would have to
// tell apart.
type List[T any] []T

// MarshalJSON implements json.Marshaler.
func (l List[T]) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]T(l))
}
