package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/rnicd/rnicd/rnic"
)

// shapes is how a peer's work requests look: as one range, as a list of some, or with inline data;
// and what it takes back of its own, by Local Invalidate. Its randomness is its own.
type shapes struct {
	rng   *rand.Rand
	grant *rnic.MemoryRegion // what windows are made of, to be invalidated
	did   map[Dimension]int
}

// shapes draws how long work requests may be. Drawn last, so that all else of a seed is the same.
func (d drawer) shapes(wl *Workload) {
	for i := range wl.Conns {
		for k := range wl.Conns[i].Ends {
			e := &wl.Conns[i].Ends[k]
			e.SGEMax, e.InlineMax = pick(d, 1, 2, 4, 9, 32), pick(d, rnic.NoInline, 0, 20, 300)
		}
	}
}

func (p *peer) openShapes() (err error) {
	s := &p.shapes
	s.rng, s.did = rand.New(rand.NewPCG(p.wl.Seed<<1, uint64(p.qp.Number()))), map[Dimension]int{}
	s.grant, err = p.pd.RegisterWith(make([]byte, 64), rnic.RegisterOptions{Windows: rnic.RemoteRead})
	return err
}

// inlineMax is the limit of the QueuePair.
func (e *End) inlineMax() int {
	switch e.InlineMax {
	case 0:
		return rnic.InlineMaxDefault
	case rnic.NoInline:
		return 0
	}
	return e.InlineMax
}

// nowhere is a range of no octets, whose STag is not to be looked at.
var nowhere = rnic.SGE{STag: 0xdead, Offset: 1<<64 - 1}

// shape gives a request n octets of the source to send, and returns them as the peer will see them.
func (p *peer) shape(wr *rnic.WorkRequest, n int) []byte {
	s, sources := &p.shapes, p.source.Bytes()
	off := p.rng.IntN(len(sources) - n + 1)
	switch {
	case n > 0 && n <= p.end.inlineMax() && s.rng.IntN(2) == 0:
		s.did["inline data"]++
		wr.Inline = append([]byte(nil), sources[off:off+n]...)
		return append([]byte(nil), wr.Inline...)
	case p.end.SGEMax <= 1 || s.rng.IntN(3) == 0:
		wr.Local = p.source.Slice(off, n)
		return sources[off : off+n]
	}
	s.did["gathered"]++
	octets := make([]byte, 0, n)
	list := cut(s.rng, n, p.end.SGEMax, func(_, k int) rnic.SGE {
		off := s.rng.IntN(len(sources) - k + 1)
		octets = append(octets, sources[off:off+k]...)
		return p.source.Slice(off, k)
	})
	wr.Local, wr.List = list[0], list[1:]
	return octets
}

// spoil ruins what the posting call was given: it has taken what it needs.
func spoil(wr *rnic.WorkRequest) {
	paint(wr.Inline)
	for i := range wr.List {
		wr.List[i] = rnic.SGE{STag: 0xbad, Length: 1 << 20}
	}
}

// cut makes up to most ranges of n octets together, some of them empty; at says which k octets from
// off of the n are.
func cut(rng *rand.Rand, n, most int, at func(off, k int) rnic.SGE) []rnic.SGE {
	var list []rnic.SGE
	off := 0
	for len(list) < most-1 && rng.IntN(5) > 0 {
		if rng.IntN(6) == 0 {
			list = append(list, nowhere)
			continue
		}
		k := rng.IntN(n - off + 1)
		list = append(list, at(off, k))
		off += k
	}
	return append(list, at(off, n-off))
}

// scattered is a host's receive slots, which are filled in pieces and in any order.
type scattered struct {
	region *rnic.MemoryRegion
	each   int          // octets of a slot
	slots  [][]rnic.SGE // ranges of each, in the order in which a message fills them
}

func newScattered(pd *rnic.ProtectionDomain, n, each int) (s *scattered, err error) {
	s = &scattered{each: each, slots: make([][]rnic.SGE, n)}
	s.region, err = pd.Register(make([]byte, n*each), rnic.LocalWrite)
	return s, err
}

// scatter says again which octets of slot i are filled in which order, and paints them.
func (s *scattered) scatter(rng *rand.Rand, i, most int) rnic.WorkRequest {
	paint(s.region.Bytes()[i*s.each:][:s.each])
	list := cut(rng, s.each, most, func(off, k int) rnic.SGE {
		return s.region.Slice(i*s.each+off, k)
	})
	rng.Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
	s.slots[i] = append([]rnic.SGE(nil), list...)
	return rnic.WorkRequest{ID: uint64(i), Local: list[0], List: list[1:]}
}

// gathered are the octets of slot i in the order in which a message fills them.
func (s *scattered) gathered(i int) []byte {
	octets := make([]byte, 0, s.each)
	for _, sge := range s.slots[i] {
		if sge.Length > 0 {
			octets = append(octets, s.region.Bytes()[sge.Offset-s.region.Base():][:sge.Length]...)
		}
	}
	return octets
}

// takeBack grants a window, now and then, and invalidates it with the next work request.
func (p *peer) takeBack() error {
	s := &p.shapes
	if s.rng.IntN(10) > 0 {
		return nil
	}
	w, err := p.pd.NewWindow()
	if err != nil {
		return err
	}
	p.requests.windows = append(p.requests.windows, w)
	stag, err := w.Bind(s.grant, rnic.WindowOptions{Len: 64, Access: rnic.RemoteRead, For: p.qp})
	if err != nil {
		return err
	}
	wr := rnic.WorkRequest{ID: p.nextID(), Op: rnic.OpLocalInvalidate, LocalSTag: stag, Signaled: true,
		Fence: s.rng.IntN(3) == 0}
	p.asked(work{id: wr.ID, op: rnic.OpLocalInvalidate, stag: stag})
	return p.postSend(wr)
}

// tookBack judges a Local Invalidate that succeeded.
func (p *peer) tookBack(w *work) error {
	if p.host.Adapter.Valid(w.stag) {
		return fmt.Errorf("%s: STag %#x was invalidated by this end and is valid", p.name, w.stag)
	}
	return nil
}
