package inet

import (
	"bytes"
	"math"
	"math/bits"
)

// The arena is cut into blocks; a datagram has those its octets fall into. A block's map has one
// bit per 8 octets, the unit of fragment offsets in both families.
const (
	blockLen       = 1024
	blockUnits     = blockLen / 8
	datagramMax    = 65535
	datagramBlocks = (datagramMax + blockLen - 1) / blockLen
)

// ReassemblyConfig bounds a Reassembly. Zero fields take the default.
type ReassemblyConfig struct {
	DatagramsMax int // being reassembled at a time, default 64
	OctetsMax    int // of fragments held, default 1 MiB; at least one datagram's 64 KiB
	// from the first fragment, default and least 60 s (RFC 1122, 3.3.2; RFC 8200, 4.5)
	TimeoutNs int64
}

func (c ReassemblyConfig) withDefaults() ReassemblyConfig {
	if c.DatagramsMax == 0 {
		c.DatagramsMax = 64
	}
	if c.OctetsMax == 0 {
		c.OctetsMax = 1 << 20
	}
	if c.TimeoutNs == 0 {
		c.TimeoutNs = 60_000_000_000
	}
	switch {
	case c.DatagramsMax < 1 || c.DatagramsMax > 1<<12:
		panic("inet: ReassemblyConfig.DatagramsMax must be 1 to 4096")
	case c.OctetsMax < datagramBlocks*blockLen || c.OctetsMax > 1<<25:
		panic("inet: ReassemblyConfig.OctetsMax must be 65536 to 33554432")
	case c.TimeoutNs < 60_000_000_000 || c.TimeoutNs > 120_000_000_000:
		panic("inet: ReassemblyConfig.TimeoutNs must be 60 s to 120 s")
	}
	return c
}

// Datagram is what fragments have in common. Of IPv6, Proto is 0 (RFC 8200, 4.5: it does not
// count).
type Datagram struct {
	Src, Dst Addr
	ID       uint32
	Proto    uint8
}

// Fragment is one of them.
type Fragment struct {
	Datagram
	Next uint8 // what the octets are, said by the fragment at offset 0
	Off  int
	More bool
	TOS  uint8 // or traffic class, with the ECN field
	// octets of headers that the whole packet will have in front of the payload and that count for
	// its length
	Head    int
	Payload []byte // copied
	Packet  []byte // the fragment from its IP header on, for an error to quote; copied
}

// Reassembly puts fragments of both families together (RFC 791, 3.2; RFC 8200, 4.5) within a fixed
// arena. Copying: a fragment's buffer is done with when Add returns. It belongs to one goroutine
// and allocates only when made.
//
// Overlap, which RFC 791 would let pass, condemns the datagram and all that is still to come of it
// (RFC 8200, 4.5; RFC 5722), except for octets that are there already and are the same: a network
// may duplicate. When slots or blocks run out, the oldest datagram gives way: fragments that never
// become whole cannot close the door.
type Reassembly struct {
	cfg     ReassemblyConfig
	slots   []partial
	n       int // slots in use
	arena   []byte
	units   [][2]uint64 // by block: which 8 octets are there
	free    []uint16    // blocks
	whole   []byte      // the datagram Add gave back last
	tos     uint8       // its TOS
	evicted uint64
}

// partial is a datagram that is not whole yet. Invariant: a block of blocks is taken iff its number
// is not noBlock.
type partial struct {
	key       Datagram
	expires   int64 // 0: slot is free
	have      int   // octets
	end       int   // total, once the last fragment was there; else -1
	highest   int   // end of the octets seen
	next      uint8
	tos       uint8 // of the fragment at offset 0
	ecns      uint8 // ECN codepoints seen, a bit each
	first     bool  // offset 0 was there
	condemned bool
	blocks    [datagramBlocks]uint16
	quoteLen  int
	quote     [icmp6QuoteMax]byte
}

const noBlock = math.MaxUint16

// NewReassembly makes one with all memory it will use. A limit without sense is the programmer's:
// panic.
func NewReassembly(cfg ReassemblyConfig) *Reassembly {
	cfg = cfg.withDefaults()
	blocks := cfg.OctetsMax / blockLen
	r := &Reassembly{
		cfg: cfg, slots: make([]partial, cfg.DatagramsMax), arena: make([]byte, blocks*blockLen),
		units: make([][2]uint64, blocks), free: make([]uint16, blocks), whole: make([]byte, datagramMax),
	}
	for i := range r.free {
		r.free[i] = uint16(i)
	}
	return r
}

// Add takes a fragment. When it makes its datagram whole, payload is that, valid until the next
// Add, and next says what it is. DropFragment: a fragment that cannot be (RFC 791, 3.2; RFC 8200,
// 4.5: ends beyond 65535, or has more to follow and is no multiple of 8 octets long, or contradicts
// where the datagram ends); with the last its datagram is condemned. DropOverlap: it, and its
// datagram.
func (r *Reassembly) Add(now int64, f *Fragment) (payload []byte, next uint8, d Drop) {
	end := f.Off + len(f.Payload)
	if len(f.Payload) == 0 || f.More && len(f.Payload)&7 != 0 || f.Off&7 != 0 ||
		end+f.Head > datagramMax {
		return nil, 0, DropFragment
	}
	s := r.slot(now, &f.Datagram)
	switch {
	case s.condemned:
		return nil, 0, DropOverlap
	case !f.More && (s.end >= 0 && s.end != end || end < s.highest), f.More && s.end >= 0 &&
		end > s.end:
		r.condemn(s)
		return nil, 0, DropFragment
	}
	known := r.known(s, f)
	switch {
	case known == duplicate:
		return nil, 0, DropNone
	case known == overlap:
		r.condemn(s)
		return nil, 0, DropOverlap
	case !r.reserve(s, f.Off, end):
		r.release(s)
		return nil, 0, DropReassemblyFull
	}
	r.store(s, f)
	s.have += len(f.Payload)
	s.highest = max(s.highest, end)
	s.ecns |= 1 << (f.TOS & ecnMask)
	if !f.More {
		s.end = end
	}
	if f.Off == 0 {
		s.first, s.next, s.tos = true, f.Next, f.TOS
		s.quoteLen = copy(s.quote[:], f.Packet)
	}
	if s.have != s.end {
		return nil, 0, DropNone
	}
	if s.ecns&(1<<ecnNot|1<<ecnCE) == 1<<ecnNot|1<<ecnCE {
		r.condemn(s)
		return nil, 0, DropFragment
	}
	r.tos = s.tos
	if s.ecns&(1<<ecnCE) != 0 {
		r.tos |= ecnCE
	}
	return r.collect(s), s.next, DropNone
}

// The ECN field of RFC 3168 section 5. A mark on any fragment marks the datagram; a marked fragment
// beside one that could not be marked drops it (section 5.3).
const (
	ecnMask = 3
	ecnNot  = 0
	ecnCE   = 3
)

// TOS is that of the datagram Add gave back last, or its traffic class.
func (r *Reassembly) TOS() uint8 { return r.tos }

// slot finds the datagram's or takes one for it.
func (r *Reassembly) slot(now int64, key *Datagram) *partial {
	var empty, oldest *partial
	for i := range r.slots {
		s := &r.slots[i]
		switch {
		case s.expires == 0:
			if empty == nil {
				empty = s
			}
		case s.key.ID == key.ID && s.key == *key:
			return s
		case oldest == nil || s.expires < oldest.expires:
			oldest = s
		}
	}
	if empty == nil {
		r.evicted++
		r.release(oldest)
		empty = oldest
	}
	r.n++
	empty.key, empty.expires = *key, now+r.cfg.TimeoutNs
	empty.have, empty.end, empty.highest, empty.quoteLen = 0, -1, 0, 0
	empty.first, empty.condemned, empty.ecns = false, false, 0
	for i := range empty.blocks {
		empty.blocks[i] = noBlock
	}
	return empty
}

type familiarity uint8

const (
	unseen familiarity = iota
	duplicate
	overlap
)

// known compares f with what is there.
func (r *Reassembly) known(s *partial, f *Fragment) familiarity {
	there, missing := false, false
	for off, rest := f.Off, f.Payload; len(rest) > 0; {
		piece := rest[:min(len(rest), blockLen-off%blockLen)]
		b := s.blocks[off/blockLen]
		if b == noBlock {
			missing = true
		} else {
			first, n := off%blockLen/8, (len(piece)+7)/8
			mask := unitMask(first, n)
			have := bits.OnesCount64(r.units[b][0]&mask[0]) + bits.OnesCount64(r.units[b][1]&mask[1])
			there = there || have > 0
			missing = missing || have < n
			at := int(b)*blockLen + off%blockLen
			if have == n && !bytes.Equal(r.arena[at:at+len(piece)], piece) {
				return overlap
			}
		}
		off, rest = off+len(piece), rest[len(piece):]
	}
	switch {
	case !there:
		return unseen
	case missing, !f.More && s.end < 0:
		return overlap
	}
	return duplicate
}

// unitMask has n bits from first on.
func unitMask(first, n int) (m [2]uint64) {
	for w := range m {
		lo, hi := max(first-64*w, 0), min(first+n-64*w, 64)
		if lo < hi {
			m[w] = ^uint64(0) >> (64 - (hi - lo)) << lo
		}
	}
	return m
}

// reserve sees to the blocks of [off, end); others give way for them. False: even that does not
// suffice.
func (r *Reassembly) reserve(s *partial, off, end int) bool {
	for i := off / blockLen; i <= (end-1)/blockLen; i++ {
		if s.blocks[i] != noBlock {
			continue
		}
		if len(r.free) == 0 && !r.evict(s) {
			return false
		}
		b := r.free[len(r.free)-1]
		r.free = r.free[:len(r.free)-1]
		r.units[b] = [2]uint64{}
		s.blocks[i] = b
	}
	return true
}

// evict gives up the oldest datagram with blocks but keep.
func (r *Reassembly) evict(keep *partial) bool {
	var oldest *partial
	for i := range r.slots {
		s := &r.slots[i]
		if s != keep && s.expires != 0 && s.have > 0 && (oldest == nil || s.expires < oldest.expires) {
			oldest = s
		}
	}
	if oldest == nil {
		return false
	}
	r.evicted++
	r.release(oldest)
	return true
}

// store copies f's octets, whose blocks are there.
func (r *Reassembly) store(s *partial, f *Fragment) {
	for off, rest := f.Off, f.Payload; len(rest) > 0; {
		b, at := s.blocks[off/blockLen], off%blockLen
		n := copy(r.arena[int(b)*blockLen+at:(int(b)+1)*blockLen], rest)
		mask := unitMask(at/8, (n+7)/8)
		r.units[b][0] |= mask[0]
		r.units[b][1] |= mask[1]
		off, rest = off+n, rest[n:]
	}
}

// collect copies a whole datagram out and ends its slot.
func (r *Reassembly) collect(s *partial) []byte {
	for i := range (s.end + blockLen - 1) / blockLen {
		copy(r.whole[i*blockLen:s.end], r.arena[int(s.blocks[i])*blockLen:(int(s.blocks[i])+1)*blockLen])
	}
	r.release(s)
	return r.whole[:s.end:s.end]
}

// condemn frees the octets and keeps the name, so that what is still to come is dropped too.
func (r *Reassembly) condemn(s *partial) {
	r.freeBlocks(s)
	s.condemned, s.have, s.quoteLen = true, 0, 0
}

func (r *Reassembly) release(s *partial) {
	r.freeBlocks(s)
	s.expires = 0
	r.n--
}

func (r *Reassembly) freeBlocks(s *partial) {
	for i, b := range s.blocks {
		if b != noBlock {
			r.free = append(r.free, b)
			s.blocks[i] = noBlock
		}
	}
}

// Deadline is when Expire is next due (math.MaxInt64: never).
func (r *Reassembly) Deadline() int64 {
	at := int64(math.MaxInt64)
	if r.n == 0 {
		return at
	}
	for i := range r.slots {
		if e := r.slots[i].expires; e != 0 {
			at = min(at, e)
		}
	}
	return at
}

// Expire gives up one datagram whose time is over; ok is false when there is none. quote, valid
// until the next Add, is the packet of its fragment zero, about which Time Exceeded is owed; nil:
// that never came, and nothing is sent (RFC 1122, 3.3.2; RFC 8200, 4.5). condemned ones end in
// silence.
func (r *Reassembly) Expire(now int64) (quote []byte, condemned, ok bool) {
	if r.n == 0 {
		return nil, false, false
	}
	for i := range r.slots {
		s := &r.slots[i]
		if s.expires == 0 || s.expires > now {
			continue
		}
		r.release(s)
		if s.quoteLen > 0 {
			quote = s.quote[:s.quoteLen]
		}
		return quote, s.condemned, true
	}
	return nil, false, false
}

// Evicted counts datagrams that gave way to newer ones.
func (r *Reassembly) Evicted() uint64 { return r.evicted }
