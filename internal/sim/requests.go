package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/rnicd/rnicd/rnic"
)

// requests is what a peer posts between its Writes and Sends when its connection has read depths:
// Reads, atomics, immediate data, and Sends with Invalidate or Immediate. Its randomness is its
// own, so that what else a seed draws is the same with and without.
//
// Each Read fetches octets of a library that never changes into a slot of its own. Atomics are
// about one word that only this stream touches; the model carries them out when they are posted,
// because they are carried out in that order.
type requests struct {
	rng *rand.Rand
	// Reads and atomics that this peer may have under way; 0: it asks for nothing
	depth   int
	library *rnic.MemoryRegion // what the remote may read
	word    *rnic.MemoryRegion // what the remote's atomics are about
	sink    *rnic.MemoryRegion
	number  int      // of Reads
	values  []uint64 // of the remote's word: at first, and after each operation
	windows []*rnic.Window
	did     map[rnic.Opcode]int
}

const (
	readMax   = 8 << 10
	readSlots = depth // more than can be pending
)

func (p *peer) openAsks(pd *rnic.ProtectionDomain, c *Conn, host int) (err error) {
	a := &p.requests
	a.rng = rand.New(rand.NewPCG(p.wl.Seed<<1|uint64(host), uint64(p.qp.Number())))
	a.depth, a.values, a.did = c.Depth[host], []uint64{0}, map[rnic.Opcode]int{}
	if c.Depth == [2]int{} {
		return nil
	}
	library := make([]byte, 4*readMax)
	for i := range library {
		library[i] = byte(a.rng.Uint32())
	}
	if a.library, err = pd.RegisterWith(library,
		rnic.RegisterOptions{Access: rnic.RemoteRead, Base: p.end.Base}); err != nil {
		return err
	}
	if a.word, err = pd.RegisterWith(make([]byte, 24),
		rnic.RegisterOptions{Access: rnic.RemoteRead | rnic.RemoteWrite, Base: p.end.Base}); err != nil {
		return err
	}
	a.sink, err = pd.Register(make([]byte, readSlots*readMax), rnic.LocalWrite)
	return err
}

// ask posts one of the kinds, now and then.
func (p *peer) ask() error {
	a := &p.requests
	if a.depth == 0 || a.rng.IntN(2) == 0 {
		return nil
	}
	wr := rnic.WorkRequest{
		ID: p.nextID(), Signaled: true, Fence: a.rng.IntN(6) == 0,
		RemoteSTag: p.remote.requests.word.STag(), RemoteOffset: p.remote.end.Base + 8,
	}
	extended := p.qp.Startup().Version == 1
	last := a.values[len(a.values)-1]
	switch kind := a.rng.IntN(8); {
	case kind == 0 && extended:
		data := a.rng.Uint64()
		a.values = append(a.values, last+data)
		p.asked(work{id: wr.ID, op: rnic.OpFetchAdd, n: 8, original: last})
		wr.Op, wr.Add = rnic.OpFetchAdd, data
		return p.postSend(wr)
	case kind == 1 && extended:
		cs := rnic.CompareSwap{Compare: last ^ uint64(a.rng.IntN(2)), CompareMask: ^uint64(0),
			Swap: a.rng.Uint64(), SwapMask: a.rng.Uint64()}
		next := last
		if cs.Compare == last {
			next = last&^cs.SwapMask | cs.Swap&cs.SwapMask
		}
		a.values = append(a.values, next)
		p.asked(work{id: wr.ID, op: rnic.OpCompareSwap, n: 8, original: last})
		wr.Op, wr.CompareSwap = rnic.OpCompareSwap, cs
		return p.postSend(wr)
	case kind <= 3 && len(p.sends) < recvDepth-1:
		return p.askAside(wr, extended && kind == 2)
	case kind == 4 && p.late != nil && len(p.sends) < recvDepth-1:
		return p.askSendImmediate(wr)
	}
	return p.askRead(wr)
}

// askAside posts a message that is no plain Send.
func (p *peer) askAside(wr rnic.WorkRequest, immediate bool) error {
	wr.RemoteOffset, wr.Solicited = 0, p.requests.rng.IntN(2) == 0
	m := message{writes: p.next, solicited: wr.Solicited}
	if immediate {
		data := [8]byte(binary.BigEndian.AppendUint64(nil, p.requests.rng.Uint64()))
		m.octets, m.immediate, m.wrote = data[:], true, p.wrote
		p.wrote = 0
		p.sends = append(p.sends, m)
		p.asked(work{id: wr.ID, op: rnic.OpImmediate, n: 8})
		wr.Op, wr.Immediate = rnic.OpImmediate, data
		return p.postSend(wr)
	}
	r := p.remote
	w, err := r.pd.NewWindow()
	if err != nil {
		return err
	}
	r.requests.windows = append(r.requests.windows, w)
	if m.invalidates, err = w.Bind(r.requests.library,
		rnic.WindowOptions{Len: 100, Access: rnic.RemoteRead, For: r.qp}); err != nil {
		return err
	}
	wr.RemoteSTag, wr.Local = m.invalidates, p.source.Slice(0, p.requests.rng.IntN(50))
	m.octets = p.source.Bytes()[:wr.Local.Length]
	p.sends = append(p.sends, m)
	p.asked(work{id: wr.ID, op: rnic.OpSendInvalidate, n: int(wr.Local.Length)})
	wr.Op = rnic.OpSendInvalidate
	return p.postSend(wr)
}

// askSendImmediate posts a Send with immediate data beside it.
func (p *peer) askSendImmediate(wr rnic.WorkRequest) error {
	rng := p.requests.rng
	wr.RemoteSTag, wr.RemoteOffset, wr.Solicited = 0, 0, rng.IntN(2) == 0
	wr.Local = p.source.Slice(0, rng.IntN(50))
	binary.BigEndian.PutUint32(wr.Immediate[:4], rng.Uint32())
	p.sends = append(p.sends, message{writes: p.next, solicited: wr.Solicited,
		octets: p.source.Bytes()[:wr.Local.Length], beside: wr.Immediate[:4]})
	p.asked(work{id: wr.ID, op: rnic.OpSendImmediate, n: int(wr.Local.Length)})
	wr.Op = rnic.OpSendImmediate
	return p.postSend(wr)
}

func (p *peer) askRead(wr rnic.WorkRequest) error {
	a := &p.requests
	n := a.rng.IntN(readMax)
	if a.rng.IntN(6) == 0 {
		n = 0
	}
	slot, off := a.number%readSlots*readMax, a.rng.IntN(a.library.Len()-n+1)
	a.number++
	paint(a.sink.Bytes()[slot:][:readMax])
	wr.Local, wr.RemoteSTag, wr.RemoteOffset = a.sink.Slice(slot, n), p.remote.requests.library.STag(),
		p.remote.end.Base+uint64(off)
	p.asked(work{id: wr.ID, op: rnic.OpRead, n: n, slot: slot, from: off})
	wr.Op = rnic.OpRead
	return p.postSend(wr)
}

func (p *peer) asked(w work) {
	w.signaled = true
	p.silent = 0
	p.requests.did[w.op]++
	p.pending = append(p.pending, w)
}

// answered judges what a Read or atomic brought.
func (p *peer) answered(w *work, c *rnic.Completion) error {
	switch w.op {
	case rnic.OpFetchAdd, rnic.OpCompareSwap:
		if c.Original != w.original {
			return fmt.Errorf("%s: %v found %#x, the word was %#x", p.name, w.op, c.Original, w.original)
		}
	case rnic.OpLocalInvalidate:
		return p.tookBack(w)
	case rnic.OpRead:
		slot := p.requests.sink.Bytes()[w.slot:][:readMax]
		if want := p.remote.requests.library.Bytes()[w.from:][:w.n]; !bytes.Equal(slot[:w.n], want) {
			return fmt.Errorf("%s: octet %d of a Read of %d differs", p.name, diffAt(slot[:w.n], want), w.n)
		}
		if k := firstNot(slot[w.n:], canary); k >= 0 {
			return fmt.Errorf("%s: a Read of %d octets wrote octet %d of its sink", p.name, w.n, w.n+k)
		}
	}
	return nil
}

// aside judges what is told of a message beside its octets.
func (p *peer) aside(m *message, c *rnic.Completion) error {
	if c.Invalidated != m.invalidates || c.WithImmediate != (m.immediate || m.beside != nil) ||
		c.Solicited != m.solicited || c.BesideSend != (m.beside != nil) ||
		m.beside != nil && !bytes.Equal(c.Immediate[:4], m.beside) ||
		m.immediate && (!bytes.Equal(c.Immediate[:], m.octets) || int(c.Written) < m.wrote) {
		return fmt.Errorf("%s: completion %+v of message %+v", p.name, *c, *m)
	}
	if m.invalidates != 0 && p.host.Adapter.Valid(m.invalidates) {
		return fmt.Errorf("%s: STag %#x was invalidated and is valid", p.name, m.invalidates)
	}
	return nil
}

// checkAsks: the word that the remote's atomics were about has one of the values that they made;
// the last one, if whole.
func (p *peer) checkAsks(whole bool) error {
	if p.requests.word == nil {
		return nil
	}
	values := p.remote.requests.values
	if whole {
		values = values[len(values)-1:]
	}
	if b := p.requests.word.Bytes(); !slices.Contains(values, binary.NativeEndian.Uint64(b[8:])) ||
		firstNot(b[:8], 0) >= 0 || firstNot(b[16:], 0) >= 0 {
		return fmt.Errorf("%s: the word and what is around it are %x, which no atomic made (whole: %v)",
			p.name, b, whole)
	}
	return nil
}

func (p *peer) closeAsks() {
	for _, w := range p.requests.windows {
		w.Free()
	}
	for _, m := range []*rnic.MemoryRegion{p.requests.library, p.requests.word, p.requests.sink,
		p.shapes.grant} {
		if m != nil {
			m.Deregister()
		}
	}
}

// depths draws how many Reads and atomics each end may have under way: for a connection that one
// end closes with messages under way too, from a generator of its own, so that what else a seed
// draws is the same.
func (d drawer) depths(wl *Workload) {
	for i := range wl.Conns {
		c, d := &wl.Conns[i], d
		if i == 0 && wl.Ending.Kind == Shutdown {
			d.chance(40)
			d = drawer{rand.New(rand.NewPCG(wl.Seed, 0xde97))}
		}
		if d.chance(40) {
			continue
		}
		c.Depth = [2]int{pick(d, 0, 1, 2, 8), pick(d, 0, 1, 3, 16)}
	}
}
