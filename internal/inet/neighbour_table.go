package inet

import (
	"math"
	"math/bits"
	"math/rand/v2"
)

// neighbour is one entry, one cache line.
type neighbour struct {
	ip          Addr
	mac         MAC // not in Incomplete
	state       neighbourState
	asks        uint8 // requests sent since the last Learn
	usedNs      int64 // last Lookup
	confirmedNs int64 // last Learn
	waiting     frameList
	hash        uint32
	timer       int32 // place in neighbourTable.timers, -1 none
}

// evictScanMax bounds the search for a victim, so that a flood into a full table costs a bounded
// walk per packet.
const evictScanMax = 64

// neighbourTable finds entries by address and by time. Entries do not move: slots is an
// open-addressing index of them with linear probing, at most half full; timers is a binary heap of
// all of them.
//
// Invariant between calls of Neighbours: every entry in slots has exactly one timer; the others are
// in free.
type neighbourTable struct {
	entries []neighbour
	slots   []uint32 // entry + 1; 0 empty
	mask    uint32
	// secret, so that no host on the link can aim at one slot; no behaviour depends on it
	key    [2]uint64
	free   []int32
	hand   int // victim begins here
	timers []neighbourTimer
}

type neighbourTimer struct {
	at    int64
	entry int32
}

func (t *neighbourTable) init(entriesMax int) {
	slots := 1 << bits.Len(uint(2*entriesMax-1))
	t.entries = make([]neighbour, entriesMax)
	t.slots = make([]uint32, slots)
	t.mask = uint32(slots - 1)
	t.key = [2]uint64{rand.Uint64(), rand.Uint64()}
	t.timers = make([]neighbourTimer, 0, entriesMax)
	t.free = make([]int32, entriesMax)
	for i := range t.free {
		t.free[i] = int32(entriesMax - 1 - i)
	}
}

// hash multiplies both keyed halves to 128 bits and folds (wyhash's mixing step).
func (t *neighbourTable) hash(ip *Addr) uint32 {
	hi, lo := bits.Mul64(ip.high()^t.key[0], ip.low()^t.key[1])
	return uint32((hi ^ lo) >> 32)
}

// find returns the entry of ip, or -1.
func (t *neighbourTable) find(ip *Addr) int32 {
	for s := t.hash(ip) & t.mask; ; s = (s + 1) & t.mask {
		i := t.slots[s]
		if i == 0 {
			return -1
		}
		if t.entries[i-1].ip == *ip {
			return int32(i - 1)
		}
	}
}

// insert takes a free entry for ip, which must not be in the table. One must be free.
func (t *neighbourTable) insert(ip Addr) int32 {
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.entries[i] = neighbour{ip: ip, hash: t.hash(&ip), usedNs: neverUsed, timer: -1}
	s := t.entries[i].hash & t.mask
	for t.slots[s] != 0 {
		s = (s + 1) & t.mask
	}
	t.slots[s] = uint32(i + 1)
	return i
}

// remove takes entry i out. It closes the gap in slots by moving back what may stand there (Knuth,
// TAOCP 3, 6.4, algorithm R): no tombstones.
func (t *neighbourTable) remove(i int32) {
	t.stopTimer(i)
	gap := t.entries[i].hash & t.mask
	for t.slots[gap] != uint32(i+1) {
		gap = (gap + 1) & t.mask
	}
	for s := (gap + 1) & t.mask; t.slots[s] != 0; s = (s + 1) & t.mask {
		home := t.entries[t.slots[s]-1].hash & t.mask
		if (s-home)&t.mask >= (s-gap)&t.mask {
			t.slots[gap] = t.slots[s]
			gap = s
		}
	}
	t.slots[gap] = 0
	t.entries[i].ip = Addr{}
	t.free = append(t.free, i)
}

// victim is the entry to give up in a full table, or -1; Neighbours documents the policy. It is
// never one that is being asked for, as Lookup has found those and they are not Stale: made again
// at once, it would be asked for too soon.
func (t *neighbourTable) victim() int32 {
	best := int32(-1)
	for range min(evictScanMax, len(t.entries)) {
		i := int32(t.hand)
		if t.hand++; t.hand == len(t.entries) {
			t.hand = 0
		}
		e := &t.entries[i]
		if e.usedNs == neverUsed {
			return i
		}
		if e.state == neighbourStale && (best < 0 || e.usedNs < t.entries[best].usedNs) {
			best = i
		}
	}
	return best
}

// deadline is the earliest timer.
func (t *neighbourTable) deadline() int64 {
	if len(t.timers) == 0 {
		return math.MaxInt64
	}
	return t.timers[0].at
}

// setTimer starts or moves the timer of entry i.
func (t *neighbourTable) setTimer(i int32, at int64) {
	k := t.entries[i].timer
	if k < 0 {
		k = int32(len(t.timers))
		t.timers = append(t.timers, neighbourTimer{})
	}
	t.sift(k, neighbourTimer{at: at, entry: i})
}

// stopTimer ends the timer of entry i, which has one.
func (t *neighbourTable) stopTimer(i int32) {
	k := t.entries[i].timer
	last := len(t.timers) - 1
	moved := t.timers[last]
	t.timers = t.timers[:last]
	t.entries[i].timer = -1
	if int(k) != last {
		t.sift(k, moved)
	}
}

// sift finds the place of x from the hole k: upwards, else downwards.
func (t *neighbourTable) sift(k int32, x neighbourTimer) {
	for k > 0 {
		parent := (k - 1) / 2
		if t.timers[parent].at <= x.at {
			break
		}
		t.place(k, t.timers[parent])
		k = parent
	}
	for {
		child := 2*k + 1
		if int(child) >= len(t.timers) {
			break
		}
		if right := child + 1; int(right) < len(t.timers) && t.timers[right].at < t.timers[child].at {
			child = right
		}
		if x.at <= t.timers[child].at {
			break
		}
		t.place(k, t.timers[child])
		k = child
	}
	t.place(k, x)
}

func (t *neighbourTable) place(k int32, x neighbourTimer) {
	t.timers[k] = x
	t.entries[x.entry].timer = k
}
