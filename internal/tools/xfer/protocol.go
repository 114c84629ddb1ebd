// Package xfer is the file transfer of `rnicd serve`, `rnicd put` and `rnicd get`, an ordinary ULP
// over package rnic.
//
//	client                                        server
//	  | -- MPA Request {put, length} ------------> |  finds room in its region, clears it, registers just that
//	  | <- MPA Reply {STag, TO, length} ---------- |  range, for just this QueuePair
//	  | == RDMA Write ... =======================> |  (its CPU sees nothing of this but the packets)
//	  | -- Send {length, SHA-256} ---------------> |  revokes the STag, hashes its memory in place
//	  | <- Send {status, SHA-256, counters} ------ |
//	  | -- FIN ----------------------------------> |
//
// get is the other way round, and the server's CPU sees nothing of the reading but the packets:
//
//	| -- MPA Request {get} ---------------------> |  lets this QueuePair alone read the memory of its file
//	| <- MPA Reply {STag, TO, length, SHA-256} --- |
//	| == RDMA Read ... ========================> |
//	| -- Send {length, SHA-256 of what came} ---> |  revokes the STag
//	| <- Send {status, SHA-256, counters} ------- |
//	| -- FIN ----------------------------------> |
//
// The answer to a put that failed has no SHA-256: it says nothing of memory that the client may not
// have written.
//
// A request may have a name after it: put has the file stay in the server's memory under it, and
// get reads that one instead of the server's own file.
//
// A request that cannot be served is rejected in the MPA Reply with a text that says why.
package xfer

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rnicd/rnicd/rnic"
)

// DefaultPort of the service.
const DefaultPort = 7174

// Op of a request.
type Op uint8

const (
	OpPut Op = 1
	OpGet Op = 2
)

const (
	protocolVersion = 1
	digestLen       = 32

	requestLen = 16
	grantLen   = 28
	getLen     = grantLen + digestLen // of a grant to read
	finishLen  = 48
	answerLen  = 128
)

var (
	magicRequest = [4]byte{'R', 'N', 'C', 'P'}
	magicGrant   = [4]byte{'R', 'N', 'C', 'G'}
	magicFinish  = [4]byte{'R', 'N', 'C', 'F'}
	magicAnswer  = [4]byte{'R', 'N', 'C', 'A'}
)

var errMalformed = errors.New("xfer: malformed message")

// request travels as private data of the MPA Request.
type request struct {
	op     Op
	length uint64
	name   string // put: keep it under this; get: read that; empty: neither
}

func (r request) marshal() []byte {
	b := make([]byte, requestLen, requestLen+nameMax)
	copy(b, magicRequest[:])
	b[4], b[5] = protocolVersion, byte(r.op)
	binary.BigEndian.PutUint64(b[8:], r.length)
	return append(b, r.name...)
}

func parseRequest(b []byte) (request, error) {
	if len(b) < requestLen || len(b) > requestLen+nameMax || [4]byte(b) != magicRequest {
		return request{}, fmt.Errorf("%w: the private data (%d octets) is not a transfer request; this "+
			"is `rnicd serve`", errMalformed, len(b))
	}
	if b[4] != protocolVersion {
		return request{}, fmt.Errorf("xfer: protocol version %d, this server speaks %d", b[4],
			protocolVersion)
	}
	r := request{op: Op(b[5]), length: binary.BigEndian.Uint64(b[8:]), name: string(b[requestLen:])}
	if r.name != "" {
		if err := CheckName(r.name); err != nil {
			return request{}, fmt.Errorf("%w: the name %w", errMalformed, err)
		}
	}
	if r.op != OpPut && r.op != OpGet {
		return request{}, fmt.Errorf("xfer: operation %d is not served", b[5])
	}
	return r, nil
}

// grant travels as private data of an accepting MPA Reply.
type grant struct {
	stag   rnic.STag
	to     uint64
	length uint64
	digest *[digestLen]byte // get: of what is there; put: nil
}

func (g grant) marshal() []byte {
	b := make([]byte, grantLen, getLen)
	copy(b, magicGrant[:])
	b[4] = protocolVersion
	binary.BigEndian.PutUint32(b[8:], uint32(g.stag))
	binary.BigEndian.PutUint64(b[12:], g.to)
	binary.BigEndian.PutUint64(b[20:], g.length)
	if g.digest != nil {
		b = append(b, g.digest[:]...)
	}
	return b
}

// parseGetGrant reads an answer to get.
func parseGetGrant(b []byte) (grant, error) {
	g, ok := readGrant(b, getLen)
	if !ok {
		return grant{}, fmt.Errorf("%w: the peer accepted, but its private data (%d octets) is no "+
			"grant to read; is it `rnicd serve --file`?", errMalformed, len(b))
	}
	digest := [digestLen]byte(b[grantLen:])
	g.digest = &digest
	return g, nil
}

// parseGrant reads an answer to put.
func parseGrant(b []byte) (grant, error) {
	g, ok := readGrant(b, grantLen)
	if !ok {
		return grant{}, fmt.Errorf("%w: the peer accepted, but its private data (%d octets) is not a "+
			"grant; is it `rnicd serve`?", errMalformed, len(b))
	}
	return g, nil
}

// readGrant reads what both have; false: b is no grant of n octets.
func readGrant(b []byte, n int) (grant, bool) {
	if len(b) != n || [4]byte(b) != magicGrant || b[4] != protocolVersion {
		return grant{}, false
	}
	return grant{
		stag: rnic.STag(binary.BigEndian.Uint32(b[8:])), to: binary.BigEndian.Uint64(b[12:]),
		length: binary.BigEndian.Uint64(b[20:]),
	}, true
}

// finish closes the client's half of the transfer.
type finish struct {
	length uint64
	digest [digestLen]byte
}

func (f finish) marshal(b []byte) []byte {
	b = b[:finishLen]
	clear(b)
	copy(b, magicFinish[:])
	binary.BigEndian.PutUint64(b[8:], f.length)
	copy(b[16:], f.digest[:])
	return b
}

func parseFinish(b []byte) (finish, error) {
	if len(b) != finishLen || [4]byte(b) != magicFinish {
		return finish{}, fmt.Errorf("%w: %d octets where the closing message was due",
			errMalformed, len(b))
	}
	return finish{length: binary.BigEndian.Uint64(b[8:]), digest: [digestLen]byte(b[16:])}, nil
}

// Counters are the receiving side's view of a transfer.
type Counters struct {
	Direct      uint64 // payload octets placed straight from the segment they came in
	Reassembled uint64 // payload octets of frames that had to wait for another segment
	OutOfOrder  uint64 // payload octets placed before an earlier gap was filled
	SegmentsIn  uint64
	Retransmits uint64 // of the receiving side's own segments
}

// answer closes the server's half.
type answer struct {
	match    bool
	digest   [digestLen]byte
	length   uint64
	wireNs   uint64 // from the grant to the closing message
	hashNs   uint64
	counters Counters
}

func (a answer) marshal(b []byte) []byte {
	b = b[:answerLen]
	clear(b)
	copy(b, magicAnswer[:])
	if a.match {
		b[4] = 1
	}
	copy(b[8:], a.digest[:])
	for i, v := range [...]uint64{a.length, a.wireNs, a.hashNs, a.counters.Direct,
		a.counters.Reassembled,
		a.counters.OutOfOrder, a.counters.SegmentsIn, a.counters.Retransmits} {
		binary.BigEndian.PutUint64(b[40+8*i:], v)
	}
	return b
}

func parseAnswer(b []byte) (answer, error) {
	if len(b) != answerLen || [4]byte(b) != magicAnswer {
		return answer{}, fmt.Errorf("%w: %d octets where the server's answer was due",
			errMalformed, len(b))
	}
	v := func(i int) uint64 { return binary.BigEndian.Uint64(b[40+8*i:]) }
	return answer{
		match: b[4] == 1, digest: [digestLen]byte(b[8:]), length: v(0), wireNs: v(1), hashNs: v(2),
		counters: Counters{Direct: v(3), Reassembled: v(4), OutOfOrder: v(5), SegmentsIn: v(6),
			Retransmits: v(7)},
	}, nil
}

// check says what in a server's answer stands against a transfer of length octets, whose SHA-256
// this end found to be digest.
func (a *answer) check(length uint64, digest [digestLen]byte) error {
	switch {
	case !a.match && a.digest == [digestLen]byte{}:
		return errors.New("xfer: the server says that the transfer failed, and gives no SHA-256: not " +
			"all octets have come to it, or not those that were sent")
	case a.length != length:
		return fmt.Errorf("xfer: the server answers for %d octets, the transfer had %d", a.length, length)
	case a.digest != digest && a.match:
		return fmt.Errorf("xfer: the server says that all is well, but its SHA-256 is %x, and "+
			"here it is %x", a.digest, digest)
	case a.digest != digest:
		return fmt.Errorf("xfer: SHA-256 mismatch: here %x, at the server %x", digest, a.digest)
	case !a.match:
		return fmt.Errorf("xfer: the server says that the transfer failed, though its SHA-256 is the "+
			"same as here: %x", digest)
	}
	return nil
}
