package mpa

import "encoding/binary"

// A marker is 16 reserved bits and FPDUPTR: the distance from the ULPDU_Length field of the FPDU
// that contains the marker to the marker's first octet (RFC 5044 section 4.2, DECISIONS 16). The
// reserved bits and the two low bits of FPDUPTR are sent zero and not looked at on receipt.

// markerGap is the number of content octets between two markers.
const markerGap = MarkerSpacing - MarkerLen

// innerMarkers counts the markers after ULPDU_Length at head that fall into size content octets, of
// which there are some. A marker right after the last octet belongs to the next FPDU and is not
// counted.
func innerMarkers(head, size uint64) uint64 {
	// content since the last marker: head stands after it, not on it
	since := head%MarkerSpacing - MarkerLen
	return (since + size - 1) / markerGap
}

// nextMarker is the first marker position at or after off.
func nextMarker(off uint64) uint64 { return (off + MarkerSpacing - 1) &^ (MarkerSpacing - 1) }

// pointer reads FPDUPTR of the marker at the front of b.
func pointer(b []byte) uint64 { return uint64(binary.BigEndian.Uint16(b[2:4]) &^ 3) }

// putMarker writes a marker whose FPDUPTR is ptr.
func putMarker(b []byte, ptr int) {
	binary.BigEndian.PutUint32(b[:MarkerLen], uint32(ptr))
}

// located is where the FPDU that contains the marker at m begins if the marker says ptr. false:
// nowhere.
func located(m, ptr uint64) (begin uint64, ok bool) {
	if ptr == 0 {
		return m, true // the marker stands in front of ULPDU_Length and is the FPDU's first octet
	}
	if ptr > m {
		return 0, false // in front of the stream
	}
	head := m - ptr
	if head%MarkerSpacing == MarkerLen {
		return head - MarkerLen, true
	}
	return head, true
}
