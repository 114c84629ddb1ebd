package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// sendCookie answers a SYN, whose sequence number is irs, in b without keeping anything of it.
// It returns whether b is done with.
func (s *synCache) sendCookie(now int64, l *listener, b mem.Buf, src inet.MAC, id *tcp.ID,
	irs tcp.Seq, half *tcp.Half) bool {
	class := half.Cookie(s.memory.Config())
	slot := tcp.CookieSlot(now)
	half.SetCookie(slot, class, s.cookieMAC(id, irs, slot, class))
	l.cookies, l.cookieAt = true, now
	s.counters.CookiesSent++
	s.template.SetMSS(linkMSS(s.host, &id.Remote))
	half.CookieSynAck(now, *id, &s.template, &s.tx.segment)
	return s.tx.answer(b, src, &s.tx.segment)
}

// cookie rebuilds what was not kept, if seg acknowledges a cookie of ours.
func (s *synCache) cookie(now int64, id *tcp.ID, seg *tcp.Segment) (tcp.Half, bool) {
	slot, class := tcp.CookieOf(now, seg)
	if !tcp.CookieMatches(seg, slot, class, s.cookieMAC(id, seg.Seq-1, slot, class)) {
		return tcp.Half{}, false
	}
	s.counters.CookiesGood++
	return tcp.FromCookie(s.secret.timestampOffset(id), seg, class), true
}

// cookieMAC authenticates what a cookie says, and the peer that it was sent to.
func (s *synCache) cookieMAC(id *tcp.ID, irs tcp.Seq, slot uint32, class uint8) uint32 {
	var tail [9]byte
	binary.BigEndian.PutUint32(tail[0:], uint32(irs))
	binary.BigEndian.PutUint32(tail[4:], slot)
	tail[8] = class
	return uint32(s.secret.tupleAnd(useCookie, id, tail[:]))
}
