package inet

import (
	"math/bits"
	"math/rand/v2"
)

// identBuckets is how many destinations' identifications run on their own; beyond, some share.
const identBuckets = 256

// Identification gives datagrams that may be fragmented their number (RFC 791, 2.3; RFC 8200, 4.5):
// not repeated for a source, destination and protocol while one counter runs round, and not to be
// guessed from those that another destination sees. It is the keyed hash plus counters of RFC 7739,
// 5.3, each counter going on by a random step, so that how fast it runs tells little. One
// goroutine; no allocation.
type Identification struct {
	key      [2]uint64
	counters [identBuckets]uint32
	rng      uint64 // xorshift64*; what guards is key, not this
}

// NewIdentification draws the secret.
func NewIdentification() *Identification {
	x := &Identification{key: [2]uint64{rand.Uint64() | 1, rand.Uint64() | 1}, rng: rand.Uint64() | 1}
	for i := range x.counters {
		x.counters[i] = rand.Uint32()
	}
	return x
}

// Next is the number for the next datagram; IPv4 takes its low 16 bits.
func (x *Identification) Next(src, dst Addr, proto uint8) uint32 {
	h, l := bits.Mul64(dst.high()^x.key[0], dst.low()^x.key[1])
	h, l = bits.Mul64(h^src.high()^uint64(proto)<<32^x.key[1], l^src.low()^x.key[0])
	sum := h ^ l
	x.rng ^= x.rng >> 12
	x.rng ^= x.rng << 25
	x.rng ^= x.rng >> 27
	counter := &x.counters[uint8(sum)]
	*counter += 1 + uint32(x.rng*0x2545f4914f6cdd1d>>61)
	return uint32(sum>>32) + *counter
}
