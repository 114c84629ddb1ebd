// Package pair is the handshake of `rnicd perf` with its own server: one connection is one test.
//
//	client                                                server
//	  | -- MPA Request {test, the client's memory} --------> |  makes memory for this client alone, with the rights that the test needs
//	  | <- MPA Reply {the server's memory} ---------------- |
//	  | == what is measured ==============================> |  package perf
//	  | -- Send with Solicited Event, 1 octet -----------> |  it is over: everything before it has arrived
//	  | <- Send, 1 octet -------------------------------- |  (a bandwidth is taken up to here)
//	  | -- FIN -----------------------------------------> |
//
// Numbers are in network order. A request that is not served is rejected in the MPA Reply, with a
// text that says why. The read depths are start-up's to settle.
package pair

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/rnic"
)

// DefaultPort of the service.
const DefaultPort = 7175

const (
	protocolVersion = 1
	requestLen      = 48
	replyLen        = 24
	lastLen         = 1 // of the messages at the end

	flagLatency = 1 << 0
)

// SizeLimit is the longest message of a test, DepthMax the deepest queue.
const (
	SizeLimit = 64 << 20
	DepthMax  = 4096
)

var (
	magicRequest = [4]byte{'R', 'N', 'P', 'Q'}
	magicReply   = [4]byte{'R', 'N', 'P', 'A'}
)

var errMalformed = errors.New("malformed message")

// place is memory of one end, as the other is told of it.
type place struct {
	stag   rnic.STag
	to     uint64 // of what the peer writes or reads
	credit uint64 // of the word of perf.Credit; the client's
}

// request is the private data of the MPA Request.
type request struct {
	test  perf.Test // Op, Latency, Size, RxDepth
	place place
}

func (r request) marshal() []byte {
	b := make([]byte, requestLen)
	copy(b, magicRequest[:])
	b[4], b[5] = protocolVersion, byte(r.test.Op)
	if r.test.Latency {
		b[6] = flagLatency
	}
	binary.BigEndian.PutUint32(b[8:], uint32(r.test.Size))
	binary.BigEndian.PutUint32(b[12:], uint32(r.test.RxDepth))
	r.place.put(b[16:])
	return b // the rest is 0
}

func (p place) put(b []byte) {
	binary.BigEndian.PutUint32(b, uint32(p.stag))
	binary.BigEndian.PutUint64(b[4:], p.to)
	if len(b) >= 20 {
		binary.BigEndian.PutUint64(b[12:], p.credit)
	}
}

// parseRequest refuses what no version of the protocol has. Sizes are the server's to judge.
func parseRequest(b []byte) (request, error) {
	if len(b) != requestLen || [4]byte(b) != magicRequest {
		return request{}, fmt.Errorf("%w: the private data (%d octets) is no request for a test; this "+
			"is `rnicd perf server`", errMalformed, len(b))
	}
	if b[4] != protocolVersion {
		return request{}, fmt.Errorf("version %d of the protocol, this server speaks %d", b[4],
			protocolVersion)
	}
	if b[6]&^flagLatency != 0 {
		return request{}, fmt.Errorf("%w: flags %#x", errMalformed, b[6])
	}
	return request{
		test: perf.Test{
			Op: perf.Op(b[5]), Latency: b[6]&flagLatency != 0,
			Size: int(binary.BigEndian.Uint32(b[8:])), RxDepth: int(binary.BigEndian.Uint32(b[12:])),
		},
		place: place{
			stag: rnic.STag(binary.BigEndian.Uint32(b[16:])), to: binary.BigEndian.Uint64(b[20:]),
			credit: binary.BigEndian.Uint64(b[28:]),
		},
	}, nil
}

// marshalReply makes the private data of an accepting MPA Reply.
func marshalReply(p place) []byte {
	b := make([]byte, replyLen)
	copy(b, magicReply[:])
	b[4] = protocolVersion
	p.put(b[8:])
	return b
}

func parseReply(b []byte) (place, error) {
	if len(b) != replyLen || [4]byte(b) != magicReply || b[4] != protocolVersion {
		return place{}, fmt.Errorf("perf: %w: the peer accepted, but its private data (%d octets) is "+
			"no answer to a test; is it `rnicd perf server`?",
			errMalformed, len(b))
	}
	return place{stag: rnic.STag(binary.BigEndian.Uint32(b[8:])), to: binary.BigEndian.Uint64(b[12:])},
		nil
}
