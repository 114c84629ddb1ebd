package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/tcp"
)

// What the secret is used for; part of the hashed octets, so that one value tells nothing of another.
const (
	useISN byte = iota
	usePort
	useTimestamp
	useLookup
	useCookie
	useDelay
	useOwner
	usePeer
	useNeighbours
)

// The dynamic ports of RFC 6335 section 6.
const (
	portFirst = 49152
	portCount = 65536 - portFirst
)

// secret is the key of everything a stranger must not guess.
type secret struct{ k0, k1 uint64 }

func newSecret(b [16]byte) secret {
	return secret{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// prf is the pseudo-random function over a use and octets.
func (s *secret) prf(use byte, data []byte) uint64 {
	var buf [64]byte
	buf[0] = use
	n := 1 + copy(buf[1:], data)
	return sipHash24(s.k0, s.k1, buf[:n])
}

// tuple is the PRF of a 4-tuple.
func (s *secret) tuple(use byte, id *tcp.ID) uint64 { return s.tupleAnd(use, id, nil) }

// tupleAnd is the PRF of a 4-tuple and up to 12 octets.
func (s *secret) tupleAnd(use byte, id *tcp.ID, more []byte) uint64 {
	var buf [48]byte
	copy(buf[0:16], id.Local[:])
	copy(buf[16:32], id.Remote[:])
	binary.BigEndian.PutUint16(buf[32:], id.LocalPort)
	binary.BigEndian.PutUint16(buf[34:], id.RemotePort)
	return s.prf(use, buf[:36+copy(buf[36:], more)])
}

// initialSeq is M + F(4-tuple, secret) of RFC 6528 section 3, M a 4 microsecond timer.
func (p *Poller) initialSeq(id *tcp.ID) tcp.Seq {
	return tcp.Seq(uint32(p.now/4000) + uint32(p.secret.tuple(useISN, id)))
}

// timestampOffset is added to the timestamp clock (RFC 7323 section 7.1). The same for every connection of a 4-tuple,
// so that its timestamps never go back.
func (p *Poller) timestampOffset(id *tcp.ID) uint32 {
	return uint32(p.secret.tuple(useTimestamp, id))
}

// ephemeralPort chooses id's local port: Simple Hash-Based Port Selection, RFC 6056 section 3.3.3. ok is false when every
// port is in use towards this remote end. One in TIME-WAIT counts as free when tcp.Conn.Redialable says so (reused): our
// sequence numbers must then begin at beyond or later.
func (p *Poller) ephemeralPort(id *tcp.ID) (beyond tcp.Seq, reused, ok bool) {
	id.LocalPort = 0
	offset := uint32(p.secret.tuple(usePort, id))
	for range portCount {
		id.LocalPort = portFirst + uint16((offset+p.nextPort)%portCount)
		p.nextPort++
		if p.owner(id) != p.cfg.Member {
			continue
		}
		if beyond, reused, ok = p.claimPort(id); ok {
			return beyond, reused, true
		}
	}
	return 0, false, false
}

// claimPort says whether id's local port is free towards its remote end; one in TIME-WAIT is made
// so when it may be.
func (p *Poller) claimPort(id *tcp.ID) (beyond tcp.Seq, reused, ok bool) {
	if p.listeners[id.LocalPort] != nil {
		return 0, false, false
	}
	i := p.table.find(id)
	if i == noConn {
		return 0, false, true
	}
	c := &p.slab.conns[i]
	if c.phase != phaseLingering || !c.tcp.Redialable(p.now) {
		return 0, false, false
	}
	beyond = c.tcp.SndNxt() + 1
	p.n.TimeWaitCut++
	p.cutTimeWait(c)
	return beyond, true, true
}

// bucket is a token bucket of rate tokens a second, which may come in one burst.
type bucket struct {
	tokens, rate int64
	last         int64 // ns
}

func newBucket(now int64, rate int) bucket { return bucket{int64(rate), int64(rate), now} }

func (b *bucket) take(now int64) bool {
	const second = 1_000_000_000
	if elapsed := now - b.last; elapsed >= second {
		b.tokens, b.last = b.rate, now
	} else if n := elapsed * b.rate / second; n > 0 {
		b.tokens = min(b.tokens+n, b.rate)
		b.last += n * second / b.rate // what is left of the time counts for the next
	}
	if b.tokens == 0 {
		return false
	}
	b.tokens--
	return true
}
