package xfer

import "slices"

// extents hands out ranges of the server's region, first fit, each to one transfer at a time.
type extents struct {
	size int
	used []extent // sorted by offset, disjoint
}

type extent struct{ off, n int }

const extentAlign = 4096

// take finds room for n octets; ok is false when there is none now.
func (e *extents) take(n int) (extent, bool) {
	at := 0
	for i, u := range e.used {
		if n <= u.off-at {
			x := extent{at, n}
			e.used = slices.Insert(e.used, i, x)
			return x, true
		}
		at = (u.off + u.n + extentAlign - 1) &^ (extentAlign - 1)
	}
	if at > e.size || n > e.size-at {
		return extent{}, false
	}
	x := extent{at, n}
	e.used = append(e.used, x)
	return x, true
}

func (e *extents) give(x extent) {
	i := slices.Index(e.used, x)
	if i < 0 {
		panic("xfer: extent given back twice")
	}
	e.used = slices.Delete(e.used, i, i+1)
}

func (e *extents) inUse() int { return len(e.used) }
