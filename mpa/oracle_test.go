package mpa

import (
	"encoding/binary"
	"errors"
)

// The oracle: an encoder that goes octet by octet and a decoder that goes in order over a whole
// stream. They share no code with the package and are as plain as the RFC's text.

// naiveCRC is CRC32C one bit at a time.
func naiveCRC(b []byte) uint32 {
	crc := ^uint32(0)
	for _, c := range b {
		crc ^= uint32(c)
		for range 8 {
			crc = crc>>1 ^ 0x82F63B78*(crc&1)
		}
	}
	return ^crc
}

// passed is one ULPDU as an in-order receiver hands it up.
type passed struct {
	start, end uint64
	ulpdu      string
}

// stream is an MPA half-connection, written by the oracle.
type stream struct {
	mode   Mode
	octets []byte
	frames []passed
}

// mark appends a marker if one is due. head is where ULPDU_Length of the current FPDU stands, -1
// before it.
func (s *stream) mark(head int) {
	at := len(s.octets)
	if !s.mode.Markers || at%512 != 0 {
		return
	}
	ptr := 0
	if head >= 0 {
		ptr = at - head
	}
	s.octets = append(s.octets, 0, 0, byte(ptr>>8), byte(ptr))
}

// add writes one FPDU.
func (s *stream) add(ulpdu []byte) {
	begin := len(s.octets)
	s.mark(-1)
	head := len(s.octets)
	content := []byte{byte(len(ulpdu) >> 8), byte(len(ulpdu))}
	content = append(content, ulpdu...)
	for len(content)%4 != 0 {
		content = append(content, 0)
	}
	for _, c := range content {
		if len(s.octets) > head {
			s.mark(head)
		}
		s.octets = append(s.octets, c)
	}
	s.mark(head)
	crc := make([]byte, 4)
	if s.mode.CRC {
		binary.LittleEndian.PutUint32(crc, naiveCRC(s.octets[begin:]))
	}
	s.octets = append(s.octets, crc...)
	s.frames = append(s.frames, passed{uint64(begin), uint64(len(s.octets)), string(ulpdu)})
}

// reseal gives frame i a good CRC again after its octets were changed.
func (s *stream) reseal(i int) {
	f := s.frames[i]
	binary.LittleEndian.PutUint32(s.octets[f.end-4:], naiveCRC(s.octets[f.start:f.end-4]))
}

var (
	errOracleCRC    = errors.New("CRC")
	errOracleMarker = errors.New("marker")
)

// naiveDecode hands up the FPDUs of a whole stream in order. rest is what is left after the last
// whole FPDU.
func naiveDecode(mode Mode, octets []byte) (frames []passed, rest int, err error) {
	at := 0
	for {
		begin := at
		pos := at
		type mark struct{ at, ptr int }
		var marks []mark
		next := func() (c byte, ok bool) {
			if mode.Markers && pos%512 == 0 {
				if pos+4 > len(octets) {
					return 0, false
				}
				marks = append(marks, mark{pos, int(binary.BigEndian.Uint16(octets[pos+2:])) &^ 3})
				pos += 4
			}
			if pos >= len(octets) {
				return 0, false
			}
			pos++
			return octets[pos-1], true
		}
		hi, ok1 := next()
		head := pos - 1
		lo, ok2 := next()
		if !ok1 || !ok2 {
			return frames, len(octets) - begin, nil
		}
		n := int(hi)<<8 | int(lo)
		if n > 64768 {
			return frames, len(octets) - begin, errOracleMarker
		}
		var content []byte
		size := (2+n+3)/4*4 - 2 + 4
		crcAt := 0
		for i := range size {
			c, ok := next()
			if !ok {
				return frames, len(octets) - begin, nil
			}
			if i == size-4 {
				crcAt = pos - 1
			}
			content = append(content, c)
		}
		if mode.CRC && naiveCRC(octets[begin:crcAt]) != binary.LittleEndian.Uint32(content[size-4:]) {
			return frames, len(octets) - begin, errOracleCRC
		}
		for _, m := range marks {
			want := m.at - head
			if m.at < head {
				want = 0
			}
			if m.ptr != want {
				return frames, len(octets) - begin, errOracleMarker
			}
		}
		frames = append(frames, passed{uint64(begin), uint64(pos), string(content[:n])})
		at = pos
	}
}
