package tcp

import "encoding/binary"

// Option kinds: RFC 9293 section 3.1, RFC 7323, RFC 2018.
const (
	optEOL           = 0
	optNOP           = 1
	optMSS           = 2
	optWindowScale   = 3
	optSACKPermitted = 4
	optSACK          = 5
	optTimestamps    = 8
)

// timestampsLen is what timestamps take on a data segment, with their two NOPs.
const timestampsLen = 12

// windowShiftMax is the largest shift of RFC 7323 section 2.3.
const windowShiftMax = 14

// sackBlocksMax fit in 40 octets of options; one less with timestamps (RFC 2018 section 3).
const sackBlocksMax = 4

// SACKBlock is [Left, Right).
type SACKBlock struct{ Left, Right Seq }

// Options that may stand in a header. SACK beyond SACKCount is unspecified.
type Options struct {
	MSS           uint16 // 0 = absent
	WindowScale   int8   // -1 = absent
	ScaleTooLarge bool   // it said more than 14, and is taken as 14 (RFC 7323 section 2.3)
	SACKPermitted bool
	HasTimestamps bool
	TSval, TSecr  uint32
	SACK          [4]SACKBlock
	SACKCount     int
}

// clear makes all options absent, leaving the blocks as they are.
func (o *Options) clear() {
	o.MSS = 0
	o.WindowScale = -1
	o.ScaleTooLarge = false
	o.SACKPermitted = false
	o.HasTimestamps = false
	o.TSval, o.TSecr = 0, 0
	o.SACKCount = 0
}

// parse reads the option octets b.
func (o *Options) parse(b []byte) Drop {
	o.clear()
	if len(b) == timestampsLen && binary.BigEndian.Uint32(b) == optNOP<<24|optNOP<<16|
		optTimestamps<<8|10 {
		o.HasTimestamps = true // what every data segment of most peers carries
		o.TSval = binary.BigEndian.Uint32(b[4:])
		o.TSecr = binary.BigEndian.Uint32(b[8:])
		return DropNone
	}
	for len(b) > 0 {
		switch b[0] {
		case optEOL:
			return DropNone
		case optNOP:
			b = b[1:]
			continue
		}
		if len(b) < 2 || b[1] < 2 || int(b[1]) > len(b) {
			return DropOptions // RFC 9293 section 3.1, MUST-7
		}
		o.take(b[0], b[2:b[1]])
		b = b[b[1]:]
	}
	return DropNone
}

// take reads one option's data v; a length wrong for the kind leaves it absent.
func (o *Options) take(kind byte, v []byte) {
	switch {
	case kind == optMSS && len(v) == 2:
		o.MSS = binary.BigEndian.Uint16(v)
	case kind == optWindowScale && len(v) == 1:
		o.WindowScale = int8(min(v[0], windowShiftMax))
		o.ScaleTooLarge = v[0] > windowShiftMax
	case kind == optSACKPermitted && len(v) == 0:
		o.SACKPermitted = true
	case kind == optTimestamps && len(v) == 8:
		o.HasTimestamps = true
		o.TSval = binary.BigEndian.Uint32(v)
		o.TSecr = binary.BigEndian.Uint32(v[4:])
	case kind == optSACK && len(v) > 0 && len(v)%8 == 0 && len(v)/8 <= sackBlocksMax:
		o.SACKCount = len(v) / 8
		for i := range o.SACKCount {
			o.SACK[i].Left = Seq(binary.BigEndian.Uint32(v[8*i:]))
			o.SACK[i].Right = Seq(binary.BigEndian.Uint32(v[8*i+4:]))
		}
	}
}

// wireLen is how many octets put writes, a multiple of 4.
func (o *Options) wireLen() int {
	n := 0
	if o.MSS != 0 {
		n += 4
	}
	switch {
	case o.HasTimestamps:
		n += timestampsLen // SACK-permitted takes the place of the NOPs
	case o.SACKPermitted:
		n += 4
	}
	if o.WindowScale >= 0 {
		n += 4
	}
	if o.SACKCount > 0 {
		n += 4 + 8*o.SACKCount
	}
	return n
}

// put writes the options in the order Linux does, which every middlebox has seen.
func (o *Options) put(b []byte) {
	if o.MSS != 0 {
		binary.BigEndian.PutUint32(b, optMSS<<24|4<<16|uint32(o.MSS))
		b = b[4:]
	}
	if o.HasTimestamps {
		lead := uint32(optNOP<<24 | optNOP<<16)
		if o.SACKPermitted {
			lead = optSACKPermitted<<24 | 2<<16
		}
		binary.BigEndian.PutUint32(b, lead|optTimestamps<<8|10)
		binary.BigEndian.PutUint32(b[4:], o.TSval)
		binary.BigEndian.PutUint32(b[8:], o.TSecr)
		b = b[timestampsLen:]
	} else if o.SACKPermitted {
		binary.BigEndian.PutUint32(b, optNOP<<24|optNOP<<16|optSACKPermitted<<8|2)
		b = b[4:]
	}
	if o.WindowScale >= 0 {
		binary.BigEndian.PutUint32(b, optNOP<<24|optWindowScale<<16|3<<8|uint32(o.WindowScale))
		b = b[4:]
	}
	if o.SACKCount > 0 {
		binary.BigEndian.PutUint32(b, optNOP<<24|optNOP<<16|optSACK<<8|uint32(2+8*o.SACKCount))
		for i, block := range o.SACK[:o.SACKCount] {
			binary.BigEndian.PutUint32(b[4+8*i:], uint32(block.Left))
			binary.BigEndian.PutUint32(b[8+8*i:], uint32(block.Right))
		}
	}
}
