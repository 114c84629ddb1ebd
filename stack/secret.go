package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/tcp"
)

// What the secret is used for; part of the hashed octets, so that one value tells nothing of
// another.
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
	useListener
)

// secret is the key of everything that a peer must not be able to guess.
type secret struct{ k0, k1 uint64 }

func newSecret(b [16]byte) secret {
	return secret{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// initialSeq is M + F(4-tuple, secret) of RFC 6528 section 3, M a 4 microsecond timer.
func (s *secret) initialSeq(now int64, id *tcp.ID) tcp.Seq {
	return tcp.Seq(uint32(now/4000) + uint32(s.tuple(useISN, id)))
}

// timestampOffset is added to the timestamp clock (RFC 7323 section 7.1). The same for every
// connection of a 4-tuple, so that its timestamps never go back.
func (s *secret) timestampOffset(id *tcp.ID) uint32 {
	return uint32(s.tuple(useTimestamp, id))
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

// prf is the pseudo-random function over a use and octets.
func (s *secret) prf(use byte, data []byte) uint64 {
	var buf [64]byte
	buf[0] = use
	n := 1 + copy(buf[1:], data)
	return sipHash24(s.k0, s.k1, buf[:n])
}
