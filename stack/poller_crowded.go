package stack

import "sync/atomic"

// crowding tells a program that has given a Bell whether the Poller has to share its core: another
// thread ran in its last yield, or has kept it from a Turn for longer than one takes. Where no core
// is left for the Poller, the program had better not poll on one that it has for itself: the kernel
// sees as many threads on either, and leaves them there.
type crowding struct {
	word  *uint32 // Bell.Crowded, or nil
	last  int64   // the Turn before, if the Poller has not given way since; else 0
	until int64   // it was kept from a Turn not long ago
	told  bool
}

const (
	keptMinNs  = 1_000_000  // no Turn takes that long
	crowdedNs  = 50_000_000 // for how long to remember
	crowdedYes = 1
)

// turned is called after each Turn, which was at now. shared says that another thread ran in the
// last yield.
func (c *crowding) turned(now int64, shared bool) {
	if c.word == nil {
		return
	}
	if c.last != 0 && now-c.last >= keptMinNs {
		c.until = now + crowdedNs
	}
	c.last = now
	yes := shared || now < c.until
	if yes == c.told {
		return
	}
	c.told = yes
	word := uint32(0)
	if yes {
		word = crowdedYes
	}
	atomic.StoreUint32(c.word, word)
}

// gaveWay is called when the Poller has slept, or yielded: the time until the next Turn says
// nothing.
func (c *crowding) gaveWay() { c.last = 0 }
