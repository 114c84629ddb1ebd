package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/tcp"
	"github.com/rnicd/rnicd/mem"
)

// sendCookie answers a SYN without keeping anything of it.
func (p *Poller) sendCookie(l *listener, b mem.Buf, src inet.MAC, id *tcp.ID, half *tcp.Half) bool {
	class := half.Cookie(p.memory.Config())
	slot := tcp.CookieSlot(p.now)
	half.SetCookie(slot, class, p.cookieMAC(id, p.seg.Seq, slot, class))
	l.cookies, l.cookieAt = true, p.now
	p.n.CookiesSent++
	p.templateConn.SetMSS(p.linkMSS(&id.Remote))
	half.CookieSynAck(p.now, *id, &p.templateConn, &p.tx.segment)
	return p.answer(b, src, &p.tx.segment)
}

// cookie rebuilds what was not kept, if s acknowledges a cookie of ours.
func (p *Poller) cookie(id *tcp.ID, s *tcp.Segment) (tcp.Half, bool) {
	slot, class := tcp.CookieOf(p.now, s)
	if !tcp.CookieMatches(s, slot, class, p.cookieMAC(id, s.Seq-1, slot, class)) {
		return tcp.Half{}, false
	}
	p.n.CookiesGood++
	return tcp.FromCookie(p.timestampOffset(id), s, class), true
}

// cookieMAC authenticates what a cookie says, and the peer that it was sent to.
func (p *Poller) cookieMAC(id *tcp.ID, irs tcp.Seq, slot uint32, class uint8) uint32 {
	var tail [9]byte
	binary.BigEndian.PutUint32(tail[0:], uint32(irs))
	binary.BigEndian.PutUint32(tail[4:], slot)
	tail[8] = class
	return uint32(p.secret.tupleAnd(useCookie, id, tail[:]))
}
