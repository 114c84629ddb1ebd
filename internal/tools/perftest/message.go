package perftest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/rnicd/rnicd/rnic"
)

// Lengths of the messages.
const (
	versionLen = 16
	numberLen  = 4
	mtuLen     = 2
	placeLen   = 56
	figureLen  = 8
	messageMax = placeLen
)

// Version is what this end calls itself: that of perftest 4.5's handshake.
const Version = "6.06"

// errMalformed: a message that no perftest sends.
var errMalformed = errors.New("perftest: malformed message")

// Hello is a version. Before its first NUL it is text; what is after is kept as it came.
type Hello [versionLen]byte

func hello(text string) (h Hello) {
	copy(h[:], text)
	return h
}

func (h Hello) String() string {
	text, _, _ := bytes.Cut(h[:], []byte{0})
	return fmt.Sprintf("%q", text)
}

// check refuses versions whose handshake has another order. What perftest itself compares is more
// lenient, but the places of the messages have changed over the versions.
func (h Hello) check() error {
	if h != hello(Version) {
		return fmt.Errorf("perftest: the peer's handshake is of version %v, this is %s (perftest 4.5)", h,
			Version)
	}
	return nil
}

// mtu is a path MTU as InfiniBand counts: '1' for 256 octets up to '5' for 4096. Over TCP it means
// nothing.
type mtu byte

const mtu1024 mtu = '3' // what siw names

func (m mtu) marshal() []byte { return []byte{byte(m), 0} }

func parseMTU(b []byte) (mtu, error) {
	if b[0] < '1' || b[0] > '5' || b[1] != 0 {
		return 0, fmt.Errorf("%w: path MTU % x", errMalformed, b)
	}
	return mtu(b[0]), nil
}

// Place is what an end tells of its QueuePair and memory. All but STag, Offset and Reads is of no
// use over TCP, and is shown to the user only.
type Place struct {
	LID      uint32
	Reads    uint32 // outstanding at a time
	QPN, PSN uint32
	STag     rnic.STag
	fill     [4]byte // of C's making: anything
	Offset   uint64
	GID      [16]byte
	SRQN     uint32
	GIDIndex uint32
}

func (p *Place) marshal() []byte {
	b := make([]byte, 0, placeLen)
	for _, v := range []uint32{p.LID, p.Reads, p.QPN, p.PSN, uint32(p.STag)} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	b = append(b, p.fill[:]...)
	b = binary.BigEndian.AppendUint64(b, p.Offset)
	b = append(b, p.GID[:]...)
	b = binary.BigEndian.AppendUint32(b, p.SRQN)
	return binary.BigEndian.AppendUint32(b, p.GIDIndex)
}

// parsePlace reads placeLen octets, which may be anything.
func parsePlace(b []byte) Place {
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	return Place{
		LID: u32(0), Reads: u32(4), QPN: u32(8), PSN: u32(12), STag: rnic.STag(u32(16)),
		fill:   [4]byte(b[20:24]),
		Offset: binary.BigEndian.Uint64(b[24:]), GID: [16]byte(b[32:48]), SRQN: u32(48),
		GIDIndex: u32(52),
	}
}

// Report is a client's figures of a bandwidth test. (Those of a server of perftest's mean nothing.)
type Report struct {
	Size, Iterations            uint64
	Peak, Average, MessageRateM float64 // MiB/s, MiB/s, millions of messages per second
}

func (r *Report) marshal() [][]byte {
	var all [][]byte
	for _, v := range []uint64{
		r.Size, r.Iterations, math.Float64bits(r.Peak), math.Float64bits(r.Average),
		math.Float64bits(r.MessageRateM),
	} {
		all = append(all, binary.BigEndian.AppendUint64(nil, v))
	}
	return all
}

// take reads the i-th message of a Report.
func (r *Report) take(i int, b []byte) {
	v := binary.BigEndian.Uint64(b)
	switch i {
	case 0:
		r.Size = v
	case 1:
		r.Iterations = v
	case 2:
		r.Peak = math.Float64frombits(v)
	case 3:
		r.Average = math.Float64frombits(v)
	case 4:
		r.MessageRateM = math.Float64frombits(v)
	}
}
