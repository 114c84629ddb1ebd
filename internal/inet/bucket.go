package inet

// Bucket is a token bucket of rate tokens a second, which may come in one burst.
type Bucket struct {
	tokens, rate int64
	last         int64 // ns
}

// NewBucket is a full one.
func NewBucket(now int64, rate int) Bucket { return Bucket{int64(rate), int64(rate), now} }

// Take takes a token; false: there is none.
func (b *Bucket) Take(now int64) bool {
	const second = 1_000_000_000
	if elapsed := now - b.last; elapsed >= second {
		b.tokens, b.last = b.rate, now
	} else if n := elapsed * b.rate / second; n > 0 {
		b.tokens = min(b.tokens+n, b.rate)
		b.last += n * second / b.rate // what is left of the time counts for the next
	}
	if b.tokens == 0 {
		return false
	}
	b.tokens--
	return true
}
