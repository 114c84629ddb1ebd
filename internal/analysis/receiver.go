package analysis

import (
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
)

// receiver is what stands above TCP. take is given new octets in a Buf, whichever come first, and
// says whether it keeps the Buf, or refuses the octets; edge says how far they have come without a
// gap.
type receiver interface {
	take(off uint64, b mem.Buf, data []byte) (kept, refused bool)
	edge(left uint64)
}

// placing is MPA's Receiver: octets stay in a Buf only while they cannot be placed.
type placing struct {
	w    *world
	recv mpa.Receiver
}

func (p *placing) take(off uint64, b mem.Buf, data []byte) (kept, refused bool) {
	p.w.held += len(data) // place takes off what is placed
	p.recv.Input(off, b, data)
	for u := p.recv.Next(); u != nil; u = p.recv.Next() {
		p.place(u)
	}
	v := p.recv.Verdict()
	if v == mpa.Refused {
		p.w.held -= len(data)
	}
	if err := p.recv.Err(); err != nil {
		panic(err) // nothing is damaged here
	}
	return v == mpa.Kept, v == mpa.Refused
}

func (p *placing) edge(left uint64) { p.recv.Edge(left) }

// place is where DDP would put the ULPDU into the application's memory.
func (p *placing) place(u *mpa.ULPDU) {
	w := p.w
	n := 0
	for _, piece := range u.Pieces {
		n += len(piece)
	}
	if n != u.Len || n != w.ulpdu {
		panic("analysis: not the ULPDU that was sent")
	}
	w.held -= int(u.End - u.Start)
	w.placed++
	if u.Direct {
		w.direct++
	}
}

// buffered is the receive buffer of a TCP without MPA, at its best: the application takes what is
// in order at once, so only what lies beyond a gap has to be kept.
type buffered struct {
	w    *world
	left uint64
	kept []run
}

// run of octets beyond a gap.
type run struct {
	end uint64
	buf mem.Buf
}

func (r *buffered) take(off uint64, b mem.Buf, data []byte) (kept, refused bool) {
	r.w.held += len(data)
	if off == r.left {
		return false, false
	}
	r.kept = append(r.kept, run{off + uint64(len(data)), b})
	return true, false
}

func (r *buffered) edge(left uint64) {
	r.w.held -= int(left - r.left)
	r.left = left
	n := 0
	for _, k := range r.kept {
		if k.end > left {
			r.kept[n] = k
			n++
			continue
		}
		r.w.pool.Free(k.buf)
	}
	r.kept = r.kept[:n]
}
