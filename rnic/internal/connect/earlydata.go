package connect

import (
	"unsafe"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// earlyData keeps octets that came while the connection was a stream and that start-up cannot take:
// those after a gap, and those after the Request. They are acknowledged, so none may be refused
// (RFC 5044 section 7.1.5: TCP must recover even while stacks are switched). They wait in their
// Bufs until the left edge has passed them and somebody wants them.
//
//	Read            Edge                    [pieces]
//	 |  in order     |   gap   |  early  |   gap   |  early  |
//
// A peer that keeps to section 7.1.2 has sent no octet after its Request, so few Bufs ever stand
// here.
type earlyData struct {
	from   uint64 // stream offset of the first octet that was not the stream's
	upTo   uint64 // the left edge at the hand-over: octets before it are handed over and never come again
	early  int    // Bufs beyond it that are still to be handed over
	edge   uint64 // the left edge
	Pieces []piece
}

// piece is octets of a Buf; pieces are in stream order.
type piece struct {
	off uint64
	buf mem.Buf
	pos uint32 // of the first octet in the Buf's slot
	n   uint32
}

// TakeOver puts MPA above a connection that was a stream. Poller's goroutine.
func (l *Connection) TakeOver(h stream.Handover) {
	l.RxNext = h.Read
	if h.Edge > h.Read || h.Early > 0 {
		l.EarlyData = &earlyData{from: h.Read, upTo: h.Edge, early: h.Early, edge: h.Edge}
	}
	l.Established()
}

// arriveEarly takes octets that are handed over, and then, while some of those wait, octets from
// TCP.
func (l *Connection) arriveEarly(off uint64, b mem.Buf, data []byte) stack.Verdict {
	h := l.EarlyData
	switch {
	case off < h.upTo:
	case h.early > 0:
		h.early--
	default:
		return l.arriveNew(off, b, data)
	}
	if v := l.arriveNew(off, b, data); v != stack.Refused {
		return v
	}
	if off < l.RxBase { // the Request's last octets
		off, data = l.RxBase, data[l.RxBase-off:]
	}
	// What may be start-up is always kept, and is little. The rest, which nobody has a right to
	// send yet, has the bounds of octets that wait for the rest of their frame.
	if off >= h.from+uint64(l.frameMax()) && (len(h.Pieces) >= l.bufsMax() || l.Pool.Available() < l.Spare) {
		l.Fail(ErrPipelined)
		return stack.Taken
	}
	pos := uintptr(unsafe.Pointer(unsafe.SliceData(data))) - uintptr(unsafe.Pointer(unsafe.SliceData(l.Pool.Slot(b))))
	own := l.Pool.Own(b) // a FPDU that begins here will be held, and joined
	if own == mem.NoBuf {
		l.Fail(ErrPipelined)
		return stack.Taken
	}
	h.Pieces = append(h.Pieces, piece{off: off, buf: own, pos: uint32(pos), n: uint32(len(data))})
	return stack.Kept
}

// giveEarly gives the octets before the left edge to whom they belong now.
func (l *Connection) giveEarly(edge uint64) {
	h := l.EarlyData
	h.edge = edge
	for len(h.Pieces) > 0 && h.Pieces[0].off < edge {
		p := &h.Pieces[0]
		data := l.Pool.Slot(p.buf)[p.pos : p.pos+p.n]
		kept := false
		switch {
		case l.startingUp():
			used := uint32(l.startup(data))
			p.off, p.pos, p.n = p.off+uint64(used), p.pos+used, p.n-used
			if p.n > 0 {
				continue
			}
		case l.Phase == phaseDecide:
			return
		case l.Phase == PhaseFull:
			if kept = l.Engine.ArriveLate(p.off-l.RxBase, p.buf, data); kept {
				l.keeps(p.off - l.RxBase + uint64(len(data)))
			}
			l.heed()
		}
		if !kept {
			l.Pool.Free(p.buf)
		}
		h.Pieces = h.Pieces[1:]
	}
	if len(h.Pieces) == 0 && edge >= h.upTo && h.early == 0 {
		l.EarlyData = nil
	}
}

// dropEarly frees what nobody will want any more.
func (l *Connection) dropEarly() {
	if l.EarlyData == nil {
		return
	}
	for _, p := range l.EarlyData.Pieces {
		l.Pool.Free(p.buf)
	}
	l.EarlyData = nil
}
