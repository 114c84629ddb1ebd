package rnic

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// fpdu is what one FPDU carries: a DDP segment. A scripted peer injects and expects these.
type fpdu struct {
	ddp.Header
	payload []byte
}

// text is a payload, however a test writes it.
type text interface{ ~string | ~[]byte }

// writeFPDU is an RDMA Write's last segment.
func writeFPDU[T text](stag mem.STag, to uint64, payload T) fpdu {
	return fpdu{writeTo(stag, to), []byte(payload)}
}

// sendFPDU is a Send's only segment.
func sendFPDU[T text](msn uint32, payload T) fpdu { return fpdu{sendOf(msn), []byte(payload)} }

// messageFPDU is the only segment of an untagged message with this opcode.
func messageFPDU[T text](op rdmap.Opcode, msn uint32, payload T) fpdu {
	h := op.Header(1)
	h.Last, h.Version, h.MSN = true, 1, msn
	return fpdu{h, []byte(payload)}
}

// terminateFPDU is a Terminate with this body, which need not be one that parses.
func terminateFPDU[T text](body T) fpdu { return messageFPDU(rdmap.OpTerminate, 1, body) }

// writeTo is the header of an RDMA Write of RFC 5040.
func writeTo(stag mem.STag, to uint64) ddp.Header {
	return ddp.Header{Tagged: true, Last: true, Version: 1, ULP: rdmap.Control(1, rdmap.OpWrite),
		STag: stag, TO: to}
}

// sendOf is the header of a Send's only segment.
func sendOf(msn uint32) ddp.Header {
	return ddp.Header{Last: true, Version: 1, ULP: rdmap.Control(1, rdmap.OpSend),
		QN: rdmap.QNSend, MSN: msn}
}

// ulpdu is f as MPA carries it.
func (f fpdu) ulpdu() []byte {
	b := make([]byte, f.Len(), f.Len()+len(f.payload))
	f.Put(b)
	return append(b, f.payload...)
}

func parseFPDU(ulpdu []byte) (f fpdu, ok bool) {
	h, n, ok := ddp.Parse(ulpdu)
	if !ok {
		return fpdu{}, false
	}
	return fpdu{h, ulpdu[n:]}, true
}

func (f fpdu) equal(g fpdu) bool {
	return f.Header == g.Header && bytes.Equal(f.payload, g.payload)
}

// String is for the reader of a failed test.
func (f fpdu) String() string {
	version, op := rdmap.ParseControl(f.ULP)
	body := showOctets(f.payload)
	switch op {
	case rdmap.OpTerminate:
		if t, ok := rdmap.ParseTerminate(f.payload); ok {
			body = t.String()
		}
	case rdmap.OpReadRequest:
		if r, ok := rdmap.ParseReadRequest(f.payload); ok {
			body = fmt.Sprintf("%+v", r)
		}
	}
	return fmt.Sprintf("%v of RDMAP version %d, %+v: %s", op, version, f.Header, body)
}

// showOctets is their number, and the first of them.
func showOctets(b []byte) string { return fmt.Sprintf("%d octets, %.48q", len(b), b) }

// cutFPDU takes the first FPDU, which has a CRC and no markers, off b. size 0: it is not whole yet.
func cutFPDU(b []byte) (ulpdu []byte, size int, err error) {
	if len(b) < mpa.HeaderLen {
		return nil, 0, nil
	}
	n := int(binary.BigEndian.Uint16(b))
	size = (mpa.HeaderLen+n+3)&^3 + mpa.CRCLen
	if len(b) < size {
		return nil, 0, nil
	}
	want, got := crc32c(b[:size-mpa.CRCLen]), binary.LittleEndian.Uint32(b[size-mpa.CRCLen:])
	if want != got {
		err = fmt.Errorf("FPDU of %d octets has CRC 0x%08x, not 0x%08x", n, got, want)
	}
	return b[mpa.HeaderLen : mpa.HeaderLen+n], size, err
}

const fpdusShown = 8 // of a stream

// showStream decodes what a peer was sent: start-up frames, then FPDUs, then what is neither.
func showStream(b []byte) string {
	var parts []string
	for len(b) > 0 {
		if len(parts) == fpdusShown {
			parts = append(parts, fmt.Sprintf("and %d octets more", len(b)))
			break
		}
		part, n := showFirst(b)
		parts = append(parts, part)
		b = b[n:]
	}
	return strings.Join(parts, "\n\t")
}

func showFirst(b []byte) (string, int) {
	for kind, name := range map[mpa.FrameKind]string{mpa.Request: "Request", mpa.Reply: "Reply"} {
		if f, n, err := mpa.ParseFrame(b, kind, mpa.PrivateDataMax); err == nil && n > 0 {
			return fmt.Sprintf("MPA %s: %+v", name, f), n
		}
	}
	ulpdu, size, err := cutFPDU(b)
	f, ok := parseFPDU(ulpdu)
	if size == 0 || err != nil || !ok {
		return "no whole FPDU: " + showOctets(b), len(b)
	}
	return f.String(), size
}

func crc32c(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
