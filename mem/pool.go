package mem

import (
	"fmt"
	"math"

	"github.com/rnicd/rnicd/hugepages"
)

// PoolConfig sizes a Pool.
type PoolConfig struct {
	Bufs int // how many
	// octets per slot, headroom included; a multiple of 64. A power of two keeps a slot within one
	// page
	Stride int
	// octets in front of the payload that a sender keeps for headers (Headroom const if 0)
	Headroom int
}

// Headroom is enough for Ethernet, two VLAN tags, IPv6, and a TCP header with all its options.
const Headroom = 128

// strideUnit is a cache line: two Bufs never share one.
const strideUnit = 64

// poolAlign makes Memory mappable by a device.
const poolAlign = 4096

// Bytes returns what the Pool takes from an arena, if the arena's next octet is page-aligned; allow
// 4096 more if it may not be.
func (c PoolConfig) Bytes() int { return c.Bufs * c.Stride }

// PoolConfigError says which number of a PoolConfig cannot be served.
type PoolConfigError struct {
	Field string
	Value int
	Want  string
}

func (e *PoolConfigError) Error() string {
	return fmt.Sprintf("mem: PoolConfig.%s is %d, must be %s", e.Field, e.Value, e.Want)
}

func (c PoolConfig) check() error {
	switch {
	case c.Stride < strideUnit || c.Stride%strideUnit != 0 || c.Stride > math.MaxInt32:
		return &PoolConfigError{"Stride", c.Stride, fmt.Sprintf("a multiple of %d", strideUnit)}
	case c.Headroom < 0 || c.Headroom > c.Stride:
		return &PoolConfigError{"Headroom", c.Headroom, fmt.Sprintf("0 to Stride (%d)", c.Stride)}
	case c.Bufs < 1 || c.Bufs > math.MaxInt32 || c.Bufs > math.MaxInt/c.Stride:
		return &PoolConfigError{"Bufs", c.Bufs, "1 to 2^31-1, and Bufs*Stride addressable"}
	}
	return nil
}

// Pool is a set of fixed-stride buffers inside one arena. It belongs to one goroutine (a Poller).
//
// Ownership: Alloc gives the caller the owner's hold. A device that keeps a Buf beyond Tx adds the
// device's hold (HoldDevice) and drops it when it is done (DeviceDone). Free drops the owner's
// hold. The Buf is free again when neither is left.
//
// Invariants: a Buf is in free, turns or returned exactly when it has no hold and is not with the
// device that reserved it; the own Bufs from first on circulate here, the others through Adopt
// and TakeReturned.
type Pool struct {
	mem        []byte
	descs      []Desc // on the Go heap: pointer-free, so the collector skips it
	holds      []hold
	free       []Buf // a stack: the Buf freed last is the one whose lines are still in the cache
	turns      turns // of Circulate: Bufs that were in use before, and are free
	returned   []Buf // reserved Bufs on their way back to the device
	stride     int
	headroom   uint32
	first, own Buf // own Bufs from first on are no device's
	pair       *Pool
	exhausted  uint64
}

// NewPool carves a Pool out of an arena. A *PoolConfigError or *hugepages.CarveError when that is
// impossible.
func NewPool(a *hugepages.Arena, cfg PoolConfig) (*Pool, error) {
	if cfg.Headroom == 0 {
		cfg.Headroom = Headroom
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	mem, err := a.Carve(cfg.Bytes(), poolAlign)
	if err != nil {
		return nil, fmt.Errorf("mem: pool of %d buffers of %d octets: %w", cfg.Bufs, cfg.Stride, err)
	}
	return poolOn(mem, cfg, 0, cfg.Bufs), nil
}

// poolOn is a Pool on the slots of mem; so many of them, from first on, are its own.
func poolOn(mem []byte, cfg PoolConfig, first, own int) *Pool {
	p := &Pool{
		mem:      mem,
		descs:    make([]Desc, cfg.Bufs),
		holds:    make([]hold, cfg.Bufs),
		free:     make([]Buf, 0, own),
		stride:   cfg.Stride,
		headroom: uint32(cfg.Headroom),
		first:    Buf(first),
		own:      Buf(own),
	}
	p.refill()
	return p
}

// NewPair carves two Pools of cfg.Bufs each for the two ends of a link that hands Bufs over with
// their memory (wire.Config.ZeroCopy): each has the other's Bufs as reserved ones, under the same
// number and in the same memory. Both circulate. Errors as NewPool. Memory for twice cfg.Bytes is
// needed.
func NewPair(a *hugepages.Arena, cfg PoolConfig) (pair [2]*Pool, err error) {
	if cfg.Headroom == 0 {
		cfg.Headroom = Headroom
	}
	if err := cfg.check(); err != nil {
		return pair, err
	}
	each := cfg.Bufs
	if cfg.Bufs *= 2; cfg.check() != nil {
		return pair, &PoolConfigError{"Bufs", each, "at most half as many in a pair"}
	}
	mem, err := a.Carve(cfg.Bytes(), poolAlign)
	if err != nil {
		return pair, fmt.Errorf("mem: two pools of %d buffers of %d octets: %w", each, cfg.Stride, err)
	}
	for i := range pair {
		pair[i] = poolOn(mem, cfg, i*each, each)
		pair[i].makeReserved()
	}
	pair[0].pair, pair[1].pair = pair[1], pair[0]
	for _, p := range pair {
		p.Circulate()
	}
	return pair, nil
}

// Pair returns the other Pool of NewPair, nil for one of NewPool.
func (p *Pool) Pair() *Pool { return p.pair }

// reserved: b is not one that circulates here.
func (p *Pool) reserved(b Buf) bool { return b-p.first >= p.own }

// makeReserved prepares for Bufs that a device brings.
func (p *Pool) makeReserved() {
	p.returned = make([]Buf, 0, len(p.descs)-int(p.own))
	for b := range p.descs {
		if p.reserved(Buf(b)) {
			p.descs[b] = Desc{Off: p.headroom}
		}
	}
}

// Lent reports whether b is one of the other Pool of a pair: its sender may read it still, for
// instance to send it again. Its owner here may read and keep it, but write nothing to it: see Own.
func (p *Pool) Lent(b Buf) bool { return p.pair != nil && p.reserved(b) }

// Own returns a Buf with the frame of b and with memory that its owner may write to: b itself, or
// where b is Lent a copy, b being freed. NoBuf, with b as it was: there is no Buf for the copy.
func (p *Pool) Own(b Buf) Buf {
	if !p.Lent(b) {
		return b
	}
	c := p.Alloc()
	if c == NoBuf {
		return c
	}
	p.descs[c] = p.descs[b]
	copy(p.Data(c), p.Data(b))
	p.Free(b)
	return c
}

// refill makes every Buf that is not reserved free, the lowest on top.
func (p *Pool) refill() {
	p.free = p.free[:p.own]
	for i := range p.free {
		p.free[i] = p.first + p.own - 1 - Buf(i)
	}
}

// Alloc returns a Buf with the owner's hold, its Desc zero except for Off = Headroom; NoBuf when
// there is none, which Exhausted counts. The octets are what the last owner left.
func (p *Pool) Alloc() Buf {
	n := len(p.free) - 1
	if p.due(n + 1) {
		return p.claim(p.turns.take())
	}
	if n < 0 {
		p.exhausted++
		return NoBuf
	}
	b := p.free[n]
	p.free = p.free[:n]
	return p.claim(b)
}

// claim gives the owner's hold on a Buf that was free.
func (p *Pool) claim(b Buf) Buf {
	p.holds[b] = holdOwner
	p.descs[b] = Desc{Off: p.headroom}
	return b
}

// AllocN fills dst from the front and returns how many it got. Fewer than asked for counts once in
// Exhausted.
func (p *Pool) AllocN(dst []Buf) int {
	n := len(dst)
	if all := p.Available(); n > all {
		n = all
		p.exhausted++
	}
	if p.turns.n > 0 {
		for i := range n {
			dst[i] = p.Alloc()
		}
		return n
	}
	top := len(p.free)
	for i := range dst[:n] {
		dst[i] = p.claim(p.free[top-1-i])
	}
	p.free = p.free[:top-n]
	return n
}

// Free drops the owner's hold. It panics when there is none: a second Free would hand one Buf to
// two owners.
func (p *Pool) Free(b Buf) {
	h := p.holds[b]
	if h&holdOwner == 0 {
		p.misuse("Free without the owner's hold", b)
	}
	h &^= holdOwner
	p.holds[b] = h
	if h == 0 {
		p.release(b)
	}
}

// FreeN drops the owner's hold on each of bufs.
func (p *Pool) FreeN(bufs []Buf) {
	for _, b := range bufs {
		p.Free(b)
	}
}

// release puts a Buf without holds where it is taken from again.
func (p *Pool) release(b Buf) {
	if p.reserved(b) {
		p.descs[b] = Desc{Off: p.headroom} // nothing of this frame may be taken for the next one's
		p.returned = append(p.returned, b) // within the capacity Reserve made
		return
	}
	if p.turns.n < p.turns.most {
		p.turns.put(b)
		return
	}
	p.free = append(p.free, b) // within the capacity NewPool made
}

// Desc returns the Buf's descriptor. It is the owner's, and stays in place for the Pool's life.
func (p *Pool) Desc(b Buf) *Desc { return &p.descs[b] }

// Data returns the frame: slot[Off:Off+Len]. It panics when the Desc points outside the slot.
func (p *Pool) Data(b Buf) []byte {
	d := &p.descs[b]
	return p.Slot(b)[d.Off:][:d.Len]
}

// Slot returns the whole slot.
func (p *Pool) Slot(b Buf) []byte {
	at := int(b) * p.stride
	return p.mem[at : at+p.stride : at+p.stride]
}

// Available returns how many Bufs Alloc could give now.
func (p *Pool) Available() int { return len(p.free) + int(p.turns.n) }

// Size returns the number of Bufs, reserved ones included.
func (p *Pool) Size() int { return len(p.descs) }

// Share returns how many Bufs the Pool's user may plan with: Size, and in a pair half of it, for
// what both send lies in both.
func (p *Pool) Share() int {
	if p.pair != nil {
		return int(p.own)
	}
	return len(p.descs)
}

// Stride returns the octets per slot.
func (p *Pool) Stride() int { return p.stride }

// Headroom returns the Off of a fresh Buf.
func (p *Pool) Headroom() int { return int(p.headroom) }

// Memory returns all slots, for a device that maps them: Buf b begins at b*Stride.
func (p *Pool) Memory() []byte { return p.mem }

// Exhausted returns how often Alloc found nothing, or AllocN too little.
func (p *Pool) Exhausted() uint64 { return p.exhausted }

// HoldDevice adds the device's hold: for a device that goes on reading a Buf after Tx took it. The
// owner must hold it, and no device may.
func (p *Pool) HoldDevice(b Buf) {
	if p.holds[b] != holdOwner {
		p.misuse("HoldDevice", b)
	}
	p.holds[b] = holdOwner | holdDevice
}

// DeviceDone drops the device's hold. It panics when there is none.
func (p *Pool) DeviceDone(b Buf) {
	h := p.holds[b]
	if h&holdDevice == 0 {
		p.misuse("DeviceDone without the device's hold", b)
	}
	h &^= holdDevice
	p.holds[b] = h
	if h == 0 {
		p.release(b)
	}
}

// InDevice reports whether a device still reads the Buf. Its octets must not change, and a
// retransmission of it must wait, while true.
func (p *Pool) InDevice(b Buf) bool { return p.holds[b]&holdDevice != 0 }

// Reserve takes n neighbouring Bufs, first to first+n-1, out of circulation for a device that
// fills them itself (DPDK's receive mempool). Such a Buf enters the stack through Adopt and, once
// freed, is handed back by TakeReturned. Once per Pool, not in a pair, before Circulate, and only
// while all Bufs are free: otherwise it panics. An error when the Pool has not more than n Bufs.
func (p *Pool) Reserve(n int) (first Buf, err error) {
	if int(p.own) != len(p.descs) || p.Available() != len(p.descs) || p.turns.most > 0 || n < 1 {
		panic(fmt.Sprintf("mem: Reserve of %d: second Reserve, Pool in use or circulating, or nothing "+
			"asked for", n))
	}
	if n >= len(p.descs) {
		return NoBuf, &PoolConfigError{"Bufs", len(p.descs), fmt.Sprintf("more than the %d reserved "+
			"for the device", n)}
	}
	p.own = Buf(len(p.descs) - n)
	p.makeReserved()
	p.refill()
	return p.own, nil
}

// Adopt gives the owner's hold on a reserved Buf that the device filled. The Desc is the device's
// to write, before or after; it is zero except for Off = Headroom when the device gets the Buf.
func (p *Pool) Adopt(b Buf) {
	if !p.reserved(b) || p.holds[b] != 0 {
		p.misuse("Adopt of a Buf that the device does not have", b)
	}
	p.holds[b] = holdOwner
}

// TakeReturned fills dst with reserved Bufs that were freed and returns how many: they are the
// device's again.
func (p *Pool) TakeReturned(dst []Buf) int {
	rest := max(len(p.returned)-len(dst), 0)
	n := copy(dst, p.returned[rest:])
	p.returned = p.returned[:rest]
	return n
}

// misuse is apart from its callers so that those stay small.
func (p *Pool) misuse(what string, b Buf) {
	panic(fmt.Sprintf("mem: %s: Buf %d has holds %02b (1 owner, 2 device), not reserved are "+
		"%d from %d", what, b, p.holds[b], p.own, p.first))
}
