package tcp

// Seq is a sequence number; comparisons are modulo 2^32 (RFC 9293 section 3.4). Inside a Conn
// positions are 64-bit stream offsets, which never wrap; Seq stands only where a segment is read or
// written.
type Seq uint32

// Sub is the signed distance from b to a: positive when a is later. It is right while the two are
// less than 2^31 apart.
func (a Seq) Sub(b Seq) int { return int(int32(a - b)) }

// Less says that a is earlier than b.
func (a Seq) Less(b Seq) bool { return int32(a-b) < 0 }

// LessEq says that a is not later than b.
func (a Seq) LessEq(b Seq) bool { return int32(a-b) <= 0 }
