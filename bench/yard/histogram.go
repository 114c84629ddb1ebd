package yard

import "math/bits"

// Histogram counts nanoseconds in buckets of a sixteenth of a power of two: a count is cheap enough
// for every turn of a loop, and a quantile is right to 6 %. The zero value is empty. One goroutine.
type Histogram struct {
	counts [64 * parts]uint64
	n      uint64
	max    int64
}

const (
	partBits = 4
	parts    = 1 << partBits
)

// Add counts one of ns, 0 or more.
func (h *Histogram) Add(ns int64) {
	h.counts[bucket(uint64(ns))]++
	h.n++
	h.max = max(h.max, ns)
}

// bucket is that of v: the place of its first bit, and the next four.
func bucket(v uint64) int {
	if v < parts {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - partBits
	return (shift+1)*parts + int(v>>shift)&(parts-1)
}

// lowest is the least value of bucket i.
func lowest(i int) int64 {
	if i < parts {
		return int64(i)
	}
	return int64(parts+i%parts) << (i/parts - 1)
}

// N is how many were counted.
func (h *Histogram) N() uint64 { return h.n }

// Max is the longest.
func (h *Histogram) Max() int64 { return h.max }

// Quantile is the least value of the bucket in which the part q of all ends; 0 when there are none.
func (h *Histogram) Quantile(q float64) int64 {
	rest := uint64(q * float64(h.n))
	for i, n := range h.counts {
		if n > rest {
			return lowest(i)
		}
		rest -= n
	}
	return h.max
}

// Merge adds what o has counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}
