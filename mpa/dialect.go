package mpa

import (
	"fmt"
	"strings"
)

// Dialect is a way to bring MPA into operation, and what it makes of the protocols above.
//
//	culley-02  no frames: MPA begins at an agreed octet, markers and CRC always
//	rddp-01    Request and Reply, Rev 0: as rfc5044, but DDP and RDMAP say version 0
//	rfc5044    Request and Reply, Rev 1
//	rtr        rfc5044 with the S bit and a Ready-to-Receive frame after the Reply (peer-to-peer proposal)
//	rfc6581    Rev 2: IRD, ORD and the RTR message in front of the private data
type Dialect uint8

const (
	Culley02 Dialect = iota + 1
	RDDP01
	RFC5044
	RTR
	RFC6581
)

var dialectNames = [...]string{Culley02: "culley-02", RDDP01: "rddp-01", RFC5044: "rfc5044",
	RTR: "rtr", RFC6581: "rfc6581"}

func (d Dialect) String() string {
	if d.Valid() {
		return dialectNames[d]
	}
	return fmt.Sprintf("dialect %d", uint8(d))
}

// Valid says whether d is one of the five.
func (d Dialect) Valid() bool { return d >= Culley02 && d <= RFC6581 }

// ParseDialect reads a name as String writes it.
func ParseDialect(name string) (Dialect, error) {
	for d := Culley02; d <= RFC6581; d++ {
		if name == dialectNames[d] {
			return d, nil
		}
	}
	return 0,
		fmt.Errorf("mpa: dialect %q is none of %s", name, strings.Join(dialectNames[Culley02:], ", "))
}

// Rev of the dialect's frames; culley-02 has none.
func (d Dialect) Rev() uint8 {
	switch d {
	case RFC6581:
		return 2
	case RFC5044, RTR:
		return 1
	}
	return 0
}

// PrivateDataMax is how many octets of private data the ULP may send in a frame of the dialect
// (DECISIONS 9).
func (d Dialect) PrivateDataMax() int {
	switch d {
	case Culley02:
		return 0
	case RDDP01:
		return privateDataMaxRev0
	case RFC6581:
		return PrivateDataMax - EnhancedLen
	}
	return PrivateDataMax
}

// Dialects is a set.
type Dialects uint8

// FramedDialects begin with frames, so that one listener can serve them all.
const FramedDialects = Dialects(1<<RDDP01 | 1<<RFC5044 | 1<<RTR | 1<<RFC6581)

// DialectsOf makes a set.
func DialectsOf(ds ...Dialect) (s Dialects) {
	for _, d := range ds {
		s |= 1 << d
	}
	return s
}

// Has says whether d is in the set.
func (s Dialects) Has(d Dialect) bool { return d.Valid() && s&(1<<d) != 0 }

func (s Dialects) String() string {
	var names []string
	for d := Culley02; d <= RFC6581; d++ {
		if s.Has(d) {
			names = append(names, d.String())
		}
	}
	return strings.Join(names, ",")
}

// Serve is the dialect in which a Request is answered; false: none of the set serves it, and
// Refusal is what to say.
//
// The S bit means the Ready-to-Receive frame below Rev 2, where that is enabled, and is reserved
// otherwise; from Rev 2 on it means the data of RFC 6581 (DECISIONS 2).
func (s Dialects) Serve(req *Frame) (Dialect, bool) {
	switch {
	case req.Rev == 0 && s.Has(RDDP01):
		return RDDP01, true
	case req.Rev == 1 && req.S && s.Has(RTR):
		return RTR, true
	case req.Rev == 1 && s.Has(RFC5044):
		return RFC5044, true
	case req.Rev == 2 && s.Has(RFC6581):
		return RFC6581, true
	}
	return 0, false
}

// AsksReady says whether a Request has an Rtr frame follow its Reply: S below Rev 2, where rtr is
// served (DECISIONS 2).
func (s Dialects) AsksReady(req *Frame) bool {
	d, ok := s.Serve(req)
	return ok && (d == RTR || d == RDDP01 && req.S && s.Has(RTR))
}

// Refusal is the Reply to a Request that no dialect of the set serves: it says with its Rev what
// could be, the nearest below the Request's, and is followed by the connection's end (DECISIONS 8,
// RFC 5044 section C.2.1). false: the set has no frames.
func (s Dialects) Refusal(req *Frame) (Frame, bool) {
	rev, found := uint8(0), false
	for d := RFC6581; d > Culley02; d-- {
		if s.Has(d) && (!found || rev > req.Rev) {
			rev, found = d.Rev(), true
		}
	}
	return Frame{Kind: Reply, Rev: rev, CRC: true, Markers: rev == 0, Reject: true}, found
}
