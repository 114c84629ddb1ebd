package vswitch

// bucket is a token bucket that may go below zero, by one burst: the sender then waits. Its zero
// value has no limit.
type bucket struct {
	rate, depth int64 // a second; at most so many at once
	level       int64
	rest        int64 // millionths that level has beside
	at          int64 // ns; up to when level counts
}

const (
	secondNs = 1_000_000_000
	burstNs  = 10_000_000
)

// newBucket is full. It holds what 10 ms bring, or least, where that is more.
func newBucket(rate, least int64) bucket {
	depth := max(rate/(secondNs/burstNs), least)
	return bucket{rate: rate, depth: depth, level: depth}
}

// fill brings the level up to now, which does not run backwards.
func (b *bucket) fill(now int64) {
	if b.rate == 0 {
		return
	}
	since := now - b.at
	if b.at == 0 || since > secondNs {
		b.level, b.at = min(b.depth, b.level+b.rate), now
		return
	}
	us := since / 1000 // RateMax times so many nanoseconds would not fit into 64 bits
	b.at += us * 1000
	parts := us*b.rate + b.rest
	b.level = min(b.depth, b.level+parts/1_000_000)
	b.rest = parts % 1_000_000
}

// empty says that nothing may be taken.
func (b *bucket) empty() bool { return b.rate != 0 && b.level <= 0 }

func (b *bucket) take(n int64) { b.level -= n }
