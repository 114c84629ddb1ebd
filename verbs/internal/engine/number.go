package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// name is what a queue pair is called that is connected by number.
type name struct {
	gid    [16]byte
	number uint32
}

// addr is the address that the GID stands for.
func (n name) addr() netip.Addr { return netip.AddrFrom16(n.gid).Unmap() }

// port is where the owner listens.
func (n name) port() netip.AddrPort { return netip.AddrPortFrom(n.addr(), portOf(n.number)) }

// compare orders names. The smaller one connects.
func (n name) compare(o name) int {
	if c := bytes.Compare(n.gid[:], o.gid[:]); c != 0 {
		return c
	}
	return int(n.number) - int(o.number)
}

func (n name) String() string { return fmt.Sprintf("0x%06x at %v", n.number, n.addr()) }

// at says whether a is the address of the GID. The interface that a names is not the GID's.
func (n name) at(a netip.Addr) bool { return n.addr() == a.Unmap().WithZone("") }

// hello is the private data of an MPA Request or Reply between queue pairs that are connected by
// number: who speaks to whom. All is big-endian.
//
//	 0  magic            4
//	 4  version          1
//	 5  answer           1   of a Reply; of a Request 0
//	 6  flags            2   what both ends must have alike
//	 8  number, to       4
//	12  number, from     4
//	16  GID, to         16
//	32  GID, from       16
//	48  proof           64   with helloProven
type hello struct {
	answer   answer
	flags    uint16
	to, from name
	proof    proof
}

const (
	helloMagic   = 0x726e7170
	helloVersion = 1
	helloLen     = 48 // without a proof

	helloAcknowledged = 1 << 0 // the connection is in acknowledged mode
	helloProven       = 1 << 1 // there is a proof
)

// answer is what a Responder says.
type answer uint8

const (
	accepted    answer = iota
	comeAgain          // the queue pair is not in RTR yet, or not any more
	unknown            // nobody has the number
	elsewhere          // an address is not what its GID says
	notForYou          // the queue pair is connected to another one, or to you another way
	notByNumber        // the Request is none of a queue pair that is connected by number
	otherSecret        // of the two ends one has another secret, or none
	proveAgain         // with the challenge that comes with this
	notAllowed         // the address is none of those that may connect
	answersEnd
)

func (a answer) String() string {
	switch a {
	case comeAgain:
		return "it is not ready to receive"
	case unknown:
		return "nobody has the number"
	case elsewhere:
		return "an address is not its GID's"
	case notForYou:
		return "it is to be connected to another queue pair"
	case notByNumber:
		return "the request is not of a queue pair that is connected by number"
	case otherSecret:
		return "the two ends do not have the same secret (rnicd run --secret-file)"
	case proveAgain:
		return "its proof is of another connection"
	case notAllowed:
		return "the address is not allowed (rnicd run --allow)"
	}
	return "accepted"
}

func (h *hello) put() []byte {
	b := make([]byte, 0, helloLen+proofLen)
	b = binary.BigEndian.AppendUint32(b, helloMagic)
	b = append(b, helloVersion, byte(h.answer))
	b = binary.BigEndian.AppendUint16(b, h.flags)
	b = binary.BigEndian.AppendUint32(b, h.to.number)
	b = binary.BigEndian.AppendUint32(b, h.from.number)
	b = append(append(b, h.to.gid[:]...), h.from.gid[:]...)
	if h.flags&helloProven != 0 {
		b = append(append(append(b, h.proof.nonce[:]...), h.proof.challenge[:]...), h.proof.code[:]...)
	}
	return b
}

// errSecret is about a peer that has another secret than this end, if it has one at all.
var errSecret = errors.New(otherSecret.String())

// errForeign is about a peer that does not connect by number as we do.
var errForeign = errors.New("the peer does not connect queue pairs by number as this device " +
	"does: it needs rnicd run --device roce of a like version")

// parseHello reads what put has written.
func parseHello(b []byte) (h hello, err error) {
	if len(b) < helloLen || binary.BigEndian.Uint32(b) != helloMagic || b[4] != helloVersion ||
		answer(b[5]) >= answersEnd {
		return h, errForeign
	}
	h.answer, h.flags = answer(b[5]), binary.BigEndian.Uint16(b[6:])
	if rest := b[helloLen:]; h.flags&helloProven != 0 && len(rest) == proofLen {
		h.proof = proof{nonce: [16]byte(rest), challenge: [16]byte(rest[16:]),
			code: [sha256.Size]byte(rest[32:])}
	} else if h.flags&helloProven != 0 || len(rest) != 0 {
		return h, errForeign
	}
	h.to.number, h.from.number = binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
	copy(h.to.gid[:], b[16:])
	copy(h.from.gid[:], b[32:helloLen])
	return h, nil
}
