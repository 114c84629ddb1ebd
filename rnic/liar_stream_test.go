package rnic

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// never is a rate of lies: one in so many.
const never = 1 << 30

// liar writes the stream of a peer that mostly speaks MPA, DDP and RDMAP well: Writes into a
// region, Sends, Terminates.
type liar struct {
	rng      *rand.Rand
	mode     mpa.Mode
	tx       mpa.Sender
	mpaLies  int // one FPDU in so many is damaged, most with a CRC that is right
	ddpLies  int // one field in so many is wrong
	region   mem.STag
	size     int // of the region
	msn      uint32
	produced []byte
}

func newLiar(rng *rand.Rand, mode mpa.Mode, region mem.STag, size int) *liar {
	l := &liar{
		rng: rng, mode: mode, region: region, size: size, msn: 1,
		mpaLies: pick(rng, 40, 400, never), ddpLies: pick(rng, 30, 200, 5000, never),
	}
	l.tx.Init(mode)
	return l
}

// pick is one of the choices.
func pick[T any](rng *rand.Rand, choices ...T) T { return choices[rng.IntN(len(choices))] }

// oneIn is true once in n times.
func oneIn(rng *rand.Rand, n int) bool { return rng.IntN(n) == 0 }

// someBits is a number of any magnitude.
func someBits(rng *rand.Rand) uint64 { return rng.Uint64() >> rng.IntN(64) }

// say appends messages until n octets more have been produced.
func (l *liar) say(n int) {
	for end := len(l.produced) + n; len(l.produced) < end; {
		switch k := l.rng.IntN(10); {
		case k < 6:
			l.write(l.payload())
		case k < 9:
			l.send(l.payload())
		default:
			if oneIn(l.rng, l.ddpLies) {
				l.terminate(l.payload())
			}
		}
	}
}

func (l *liar) payload() []byte {
	n := l.rng.IntN(60)
	switch l.rng.IntN(12) {
	case 0:
		n = l.rng.IntN(1400)
	case 1:
		n = l.rng.IntN(5000)
	case 2:
		if oneIn(l.rng, 10) {
			n = l.rng.IntN(64000)
		}
	case 3, 4, 5, 6:
		n = l.rng.IntN(3)
	}
	return randomBytes(l.rng.Uint64(), n)
}

func (l *liar) write(p []byte) {
	p = p[:min(len(p), l.size)]
	h := writeTo(l.region, uint64(l.rng.IntN(l.size-len(p)+1)))
	h.Last = !oneIn(l.rng, 4)
	if oneIn(l.rng, l.ddpLies) {
		h.TO = someBits(l.rng)
	}
	if oneIn(l.rng, l.ddpLies) {
		h.STag = mem.STag(l.rng.Uint32())
	}
	if oneIn(l.rng, l.ddpLies) {
		h.ULP = byte(l.rng.Uint32())
	}
	if oneIn(l.rng, l.ddpLies) {
		h.Version = byte(l.rng.IntN(4))
	}
	l.fpdu(h, p)
}

func (l *liar) send(p []byte) {
	p = p[:min(len(p), 2000)]
	h := sendOf(l.msn)
	l.msn++
	if oneIn(l.rng, l.ddpLies) {
		h.MSN += uint32(l.rng.IntN(20)) - 10
	}
	if oneIn(l.rng, l.ddpLies) {
		h.QN = uint32(l.rng.IntN(5))
	}
	if oneIn(l.rng, l.ddpLies) {
		h.ULP = rdmap.Control(1, rdmap.Opcode(l.rng.IntN(16)))
	}
	if len(p) <= 2 || !oneIn(l.rng, 6) {
		l.fpdu(h, p)
		return
	}
	cut := l.rng.IntN(len(p)) // two segments
	rest := h
	h.Last, rest.MO = false, uint32(cut)
	if oneIn(l.rng, l.ddpLies) {
		rest.MO = uint32(someBits(l.rng))
	}
	l.fpdu(h, p[:cut])
	l.fpdu(rest, p[cut:])
}

func (l *liar) terminate(p []byte) {
	h := ddp.Header{
		Last: !oneIn(l.rng, 3), Version: 1, ULP: rdmap.Control(1, rdmap.OpTerminate),
		QN:  rdmap.QNTerminate,
		MSN: uint32(l.rng.IntN(3)),
	}
	l.fpdu(h, p[:min(len(p), l.rng.IntN(70))])
}

// fpdu frames a DDP segment, perhaps with damage.
func (l *liar) fpdu(h ddp.Header, payload []byte) {
	head := make([]byte, h.Len())
	h.Put(head)
	b := make([]byte, l.tx.Size(len(head)+len(payload)))
	at := l.tx.Offset()
	l.tx.Put(b, [][]byte{head, payload})
	if oneIn(l.rng, l.mpaLies) {
		l.damage(b, at)
		if !oneIn(l.rng, 4) && l.mode.CRC {
			binary.LittleEndian.PutUint32(b[len(b)-4:], crc32c(b[:len(b)-4]))
		}
	}
	l.produced = append(l.produced, b...)
}

// damage is done to an FPDU that stands at stream offset at.
func (l *liar) damage(b []byte, at uint64) {
	short := uint16(l.rng.Uint32()) >> l.rng.IntN(16)
	first := int(-at % mpa.MarkerSpacing) // marker in b
	switch l.rng.IntN(4) {
	case 0: // markers that point elsewhere
		for i := first; l.mode.Markers && i+mpa.MarkerLen <= len(b); i += mpa.MarkerSpacing {
			binary.BigEndian.PutUint16(b[i+2:], short)
		}
	case 1: // ULPDU_Length
		i := 0
		if l.mode.Markers && first == 0 {
			i = mpa.MarkerLen
		}
		binary.BigEndian.PutUint16(b[i:], short)
	case 2:
		b[l.rng.IntN(len(b))] ^= 1 << l.rng.IntN(8)
	case 3:
		if len(b) > 8 {
			b[4+l.rng.IntN(len(b)-8)] = byte(l.rng.Uint32())
		}
	}
}
