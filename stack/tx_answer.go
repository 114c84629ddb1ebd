package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// reset answers a segment that belongs to no connection, in the segment's own Buf and to the
// station it came from: the neighbour table is not asked, so an unproven peer cannot fill it. It
// returns whether b is done with.
func (x *transmitter) reset(now int64, b mem.Buf, src inet.MAC, id *tcp.ID, s *tcp.Segment) bool {
	t := &x.segment
	if !tcp.ResetFor(*id, s, t) {
		return true
	}
	if !x.resets.Take(now) {
		x.counters.Own[DropRSTLimited]++
		return true
	}
	if x.answer(b, src, t) {
		return true
	}
	x.counters.RSTSent++
	return false
}

// answer sends the segment t, without octets, in b to mac; b is done with when it could not.
func (x *transmitter) answer(b mem.Buf, mac inet.MAC, t *tcp.Transmit) bool {
	x.putHeaders(b, t, 0, 0)
	return !x.reply(b, mac)
}
