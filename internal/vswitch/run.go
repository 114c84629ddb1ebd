package vswitch

import "encoding/binary"

// run is frames after each other, from one port, of one flow of TCP: what was found for the first
// holds for all. It is kept for a burst, so nothing of it outlives a change.
type run struct {
	valid bool
	ip6   bool
	words [7]uint64 // what tells one flow from another
	to    *port
}

var le = binary.LittleEndian

// of is where a frame goes that belongs to the run, or nil.
func (r *run) of(b []byte) *port {
	if !r.valid {
		return nil
	}
	var w [7]uint64
	ip6, ok := words(b, &w)
	if !ok || ip6 != r.ip6 || w != r.words {
		return nil
	}
	return r.to
}

// begin starts a run with a frame, if it can be the first of one.
func (r *run) begin(b []byte, to *port) {
	r.ip6, r.valid = words(b, &r.words)
	r.to = to
}

// words are MACs, addresses and ports of a frame with a whole TCP segment, without tag, options
// and extension headers.
func words(b []byte, w *[7]uint64) (ip6, ok bool) {
	if len(b) < 14+20+20 {
		return false, false
	}
	w[0], w[1] = le.Uint64(b), uint64(le.Uint32(b[8:]))
	if b[12] == 0x08 && b[13] == 0 {
		total := int(be.Uint16(b[16:]))
		if b[14] != 0x45 || b[23] != 6 || be.Uint16(b[20:])&0x3fff != 0 || total < 40 ||
			total > len(b)-14 {
			return false, false
		}
		w[2], w[3] = le.Uint64(b[26:]), uint64(le.Uint32(b[34:]))
		w[4], w[5], w[6] = 0, 0, 0
		return false, true
	}
	if b[12] != 0x86 || b[13] != 0xdd || len(b) < 14+40+20 || b[14]>>4 != 6 || b[20] != 6 {
		return false, false
	}
	if n := int(be.Uint16(b[18:])); n < 20 || n > len(b)-14-40 {
		return false, false
	}
	w[6] = uint64(le.Uint32(b[54:]))
	w[2], w[3], w[4], w[5] = le.Uint64(b[22:]), le.Uint64(b[30:]), le.Uint64(b[38:]), le.Uint64(b[46:])
	return true, true
}
