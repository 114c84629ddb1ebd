// Package floor measures the least cost of moving octets with a CRC from one core to another: a
// lock-free ring and no protocol. One thread copies payload from a source of 1 MiB into buffers and
// computes its CRC32C, the other verifies it and copies the payload out. The stack is compared with
//
//   - 2 copies, as with a NIC, whose DMA takes no core's time, or pmd/wire without copying
//   - 4 copies, two of them for the DMA of both ends, as pmd/wire makes them
//
// The best way depends on the machine: copy and CRC in one pass or two, the number of buffers,
// and how many are published together. Best tries them (best.go).
package floor

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/rnicd/rnicd/bench/yard"
	"github.com/rnicd/rnicd/internal/crc32c"
	"github.com/rnicd/rnicd/mem"
)

const (
	sourceBytes = 1 << 20
	burstMax    = 32
	lineBytes   = 64
)

// Config of a Floor.
type Config struct {
	Payload int  // octets of a buffer
	Copies  int  // 2 or 4
	Slots   int  // buffers on their way, a power of two
	Burst   int  // of them published together, at most burstMax
	Own     int  // with 4 copies: buffers of each side's own, a power of two
	Oldest  bool // the buffer that came back first is used first; else the one that came back last
	Ways
}

// Ways are where the CRC is computed. The zero value is a pass of its own at both ends.
type Ways struct {
	Send bool // with the copy out of the source
	Recv Recv
}

// Recv says with which copy of the receiver the CRC is computed.
type Recv uint8

const (
	Apart Recv = iota // with none: after the first of two, before the last
	First             // with the first of two
	Last              // with the last: octets are copied out before the verdict
)

func (r Recv) String() string { return [...]string{"apart", "first", "last"}[r] }

// slot is a buffer on its way.
type slot struct{ at, n, crc uint32 }

// Floor is one of them. The sender is its Left side, the receiver its Right.
type Floor struct {
	cfg    Config
	stride int
	ring   *mem.SPSC[slot]
	back   *mem.SPSC[uint32] // slots that are free again
	shared []byte            // the slots' octets
	left   side
	right  side
	free   freeSlots
	failed error
	yields bool // of a test on one processor: a side that waits lets the other run
}

// side is what one thread alone has.
type side struct {
	memory []byte // source or destination
	at     int    // in it
	bufs   []byte // with 4 copies
	next   uint32 // of bufs
	_      [lineBytes]byte
}

// New makes a Floor.
func New(cfg Config) (*Floor, error) {
	if cfg.Copies != 2 && cfg.Copies != 4 || cfg.Payload < 1 || cfg.Payload > sourceBytes ||
		bits.OnesCount(uint(cfg.Slots)) != 1 || cfg.Burst < 1 || cfg.Burst > min(burstMax, cfg.Slots) ||
		cfg.Copies == 4 && bits.OnesCount(uint(cfg.Own)) != 1 || cfg.Copies == 2 && cfg.Recv == First {
		return nil, fmt.Errorf("floor: %+v: want 2 or 4 copies, a payload up to %d, powers of two of "+
			"slots and of own buffers, a burst up to %d of them", cfg, sourceBytes, burstMax)
	}
	// An odd number of lines, as in pmd/wire.
	f := &Floor{cfg: cfg, stride: ((cfg.Payload+lineBytes-1)/lineBytes | 1) * lineBytes}
	f.ring = mem.NewSPSC(make([]slot, cfg.Slots))
	f.back = mem.NewSPSC(make([]uint32, cfg.Slots))
	f.shared = make([]byte, cfg.Slots*f.stride)
	f.free.at = make([]uint32, cfg.Slots)
	for i := range cfg.Slots {
		f.free.put(uint32(i))
	}
	source := rand.NewChaCha8([32]byte{byte(cfg.Payload), byte(cfg.Copies)})
	f.left.memory, f.right.memory = make([]byte, sourceBytes), make([]byte, sourceBytes)
	_, _ = source.Read(f.left.memory) // never fails
	if cfg.Copies == 4 {
		f.left.bufs, f.right.bufs = make([]byte, cfg.Own*f.stride), make([]byte, cfg.Own*f.stride)
	}
	return f, nil
}

// octets are those of slot i in memory.
func (f *Floor) octets(memory []byte, i uint32, n int) []byte {
	return memory[int(i)*f.stride:][:n]
}

// piece is the next of the side's memory.
func (s *side) piece(n int) []byte {
	if s.at == len(s.memory) {
		s.at = 0
	}
	p := s.memory[s.at:min(s.at+n, len(s.memory))]
	s.at += len(p)
	return p
}

// buf is the side's next buffer of its own.
func (f *Floor) buf(s *side, n int) []byte {
	s.next = (s.next + 1) & uint32(f.cfg.Own-1)
	return f.octets(s.bufs, s.next, n)
}

// Left sends.
func (f *Floor) Left(s *yard.Slice) {
	for !s.Over() {
		f.takeBack()
		n := min(f.cfg.Burst, f.free.len())
		if n < f.cfg.Burst {
			f.idle()
			continue
		}
		for i := range n {
			at := f.free.take(f.cfg.Oldest)
			from := f.left.piece(f.cfg.Payload)
			to := f.octets(f.shared, at, len(from))
			first := to
			if f.cfg.Copies == 4 {
				first = f.buf(&f.left, len(from))
			}
			crc := copyCRC(f.cfg.Send, first, from)
			if f.cfg.Copies == 4 {
				copy(to, first)
			}
			*f.ring.Reserve(i) = slot{at, uint32(len(from)), crc}
		}
		f.ring.Publish(n)
	}
}

// freeSlots are the sender's: a ring, in the order in which they came back.
type freeSlots struct {
	at      []uint32
	in, out uint32
}

func (f *freeSlots) len() int { return int(f.in - f.out) }

func (f *freeSlots) put(slot uint32) {
	f.at[f.in&uint32(len(f.at)-1)] = slot
	f.in++
}

func (f *freeSlots) take(oldest bool) uint32 {
	i := f.in - 1
	if oldest {
		i = f.out
		f.out++
	} else {
		f.in--
	}
	return f.at[i&uint32(len(f.at)-1)]
}

// copyCRC copies from to to and returns the CRC, in one pass or in two.
func copyCRC(one bool, to, from []byte) uint32 {
	if one {
		return crc32c.Copy(0, to, from)
	}
	copy(to, from)
	return crc32c.Update(0, to)
}

func (f *Floor) idle() {
	if f.yields {
		runtime.Gosched()
	}
}

// takeBack makes slots free that came back.
func (f *Floor) takeBack() {
	var back [burstMax]uint32
	for _, slot := range back[:f.back.PopN(back[:])] {
		f.free.put(slot)
	}
}

// Right receives.
func (f *Floor) Right(s *yard.Slice) {
	const tell = 64 << 10
	done := 0
	var slots [burstMax]slot
	var back [burstMax]uint32
	for !s.Over() {
		n := f.ring.PopN(slots[:])
		if n == 0 {
			f.idle()
			continue
		}
		for i, c := range slots[:n] {
			from := f.octets(f.shared, c.at, int(c.n))
			if f.receive(f.right.piece(f.cfg.Payload), from) != c.crc {
				f.failed = errors.New("floor: a CRC is wrong")
			}
			back[i] = c.at
			done += len(from)
		}
		f.back.PushN(back[:n])
		if done >= tell {
			s.Did(float64(done))
			done = 0
		}
	}
}

// receive copies from out to to and returns the CRC.
func (f *Floor) receive(to, from []byte) (crc uint32) {
	if f.cfg.Copies == 4 {
		buf := f.buf(&f.right, len(from))
		if f.cfg.Recv == First {
			crc = crc32c.Copy(0, buf, from)
			copy(to, buf)
			return crc
		}
		copy(buf, from)
		from = buf
	}
	if f.cfg.Recv == Last {
		return crc32c.Copy(0, to, from)
	}
	crc = crc32c.Update(0, from)
	copy(to, from)
	return crc
}

// Check moves one source more, and says whether what was moved is what was sent.
func (f *Floor) Check() error {
	s := yard.Until(sourceBytes)
	var left sync.WaitGroup
	left.Go(func() { f.Left(s) })
	f.Right(s)
	left.Wait()
	switch {
	case f.failed != nil:
		return f.failed
	case !bytes.Equal(f.left.memory, f.right.memory):
		return errors.New("floor: what arrived is not what was sent")
	}
	return nil
}

// Contender is f under a name.
func (f *Floor) Contender(name string) *yard.Contender {
	return &yard.Contender{Name: name, Unit: "octets/s", Left: f.Left, Right: f.Right, Check: f.Check}
}
