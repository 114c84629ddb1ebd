package mpa

// An FPDU on the wire (RFC 5044 section 4.1):
//
//	[marker] ULPDU_Length(2) ULPDU PAD(0-3) CRC(4)
//
// with one more marker wherever the stream offset is a multiple of 512. ULPDU_Length, ULPDU, PAD
// and CRC are the FPDU's content; it is a multiple of four octets, as are markers, so every FPDU
// begins at a multiple of four.

// contentMax is the content of the largest FPDU, fpduMax the stream octets it takes at the worst
// position.
const (
	contentMax = (HeaderLen+mulpduMax+3)&^3 + CRCLen
	fpduMax    = contentMax + MarkerLen*(1+(contentMax+markerGap-1)/markerGap)
)

// frame is where one FPDU stands in the stream.
type frame struct {
	begin uint64 // first octet: that of the leading marker if there is one
	head  uint64 // ULPDU_Length
	end   uint64 // the octet after the CRC
	n     int    // ULPDU_Length's value
}

// content is the number of octets of an FPDU without markers.
func content(n int) int { return (HeaderLen+n+3)&^3 + CRCLen }

// pad is the number of PAD octets after an n-octet ULPDU.
func pad(n int) int { return -(HeaderLen + n) & 3 }

// headOf is the offset of ULPDU_Length in an FPDU that begins at begin.
func (m Mode) headOf(begin uint64) uint64 {
	if m.Markers && begin%MarkerSpacing == 0 {
		// the marker between two FPDUs belongs to the second (RFC 5044 section 4.3)
		return begin + MarkerLen
	}
	return begin
}

// endOf is the end of the FPDU whose ULPDU_Length stands at head and says n.
func (m Mode) endOf(head uint64, n int) uint64 {
	size := uint64(content(n))
	if m.Markers {
		return head + size + MarkerLen*innerMarkers(head, size)
	}
	return head + size
}

// frameOf is the extent of the FPDU that begins at begin and whose ULPDU has n octets.
func (m Mode) frameOf(begin uint64, n int) frame {
	head := m.headOf(begin)
	return frame{begin: begin, head: head, end: m.endOf(head, n), n: n}
}
