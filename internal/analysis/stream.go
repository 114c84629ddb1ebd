package analysis

import "github.com/rnicd/rnicd/mpa"

// stream is what every connection of a world sends: one FPDU after the other, each with a ULPDU of
// the same length.
type stream struct {
	mode   mpa.Mode
	octets []byte
	bounds []uint64 // where FPDUs begin, and the end of the last
}

// newStream is at least size octets of FPDUs.
func newStream(mode mpa.Mode, ulpdu, size int) *stream {
	var s mpa.Sender
	s.Init(mode)
	payload := make([]byte, ulpdu)
	for i := range payload {
		payload[i] = byte(i*i + i>>8)
	}
	parts := [][]byte{payload}
	st := &stream{mode: mode, octets: make([]byte, size+2*ulpdu+64), bounds: []uint64{0}}
	for s.Offset() < uint64(size) {
		s.Put(st.octets[s.Offset():], parts)
		st.bounds = append(st.bounds, s.Offset())
	}
	st.octets = st.octets[:s.Offset()]
	return st
}

func (s *stream) end() uint64 { return uint64(len(s.octets)) }
