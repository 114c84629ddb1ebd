package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/rnicd/rnicd/rnic"
)

const (
	regionMax   = 256 << 10
	canaryBytes = 4096
	canary      = 0xa5
	depth       = 32 // of a send queue
	recvDepth   = 16
	recvIDs     = recvDepth // work request IDs below are receive slots, above send-side numbers
	silentMax   = 4         // unsignaled work requests in a row
	privateMax  = 508       // octets of private data, in every dialect
)

// work is a posted work request of the send side.
type work struct {
	id       uint64
	op       rnic.Opcode
	n        int
	signaled bool
	next     int // peer.next when it was posted

	slot, from int       // Read: where to, from which octet of the remote's library
	original   uint64    // atomic: what it must find
	stag       rnic.STag // Local Invalidate
}

// message is a Send on its way.
type message struct {
	octets []byte
	writes int // so much of the remote region had been written by Writes posted before it

	immediate, solicited bool
	// immediate data: octets of the Write that was posted last, since the immediate data before
	wrote       int
	invalidates rnic.STag
	beside      []byte // of Send with Immediate
}

// peer is one end of a connection and the application above it, with the model of what the other
// end's memory must become.
//
// Writes of one stream that overlap may be placed in any order (RFC 5040 section 5.5), so none do:
// they fill the remote region from its front. A Send that was delivered says that all Writes before
// it were placed.
type peer struct {
	name     string
	wl       *Workload
	host     *Host
	end      *End
	qp       *rnic.QueuePair
	pd       *rnic.ProtectionDomain
	requests requests
	shapes   shapes
	numbers  uint64 // work requests of the send side
	rng      *rand.Rand
	guarded  []byte // region with canaries around it
	region   *rnic.MemoryRegion
	source   *rnic.MemoryRegion // random octets that Writes and Sends come from
	inbox    *scattered
	private  []byte // of the start-up frame: STag, and random octets

	// acknowledged mode: receive buffers are posted later, when chance has it. nil: at once
	late     *rand.Rand
	lateRecv []int // which

	pool      *recvPool // where receive buffers come from; nil: the QueuePair has its own
	lastTaken uint64    // the last of them, by the order of posting

	remote     *peer
	remoteSTag rnic.STag
	want       []byte // what the remote region must hold in the end
	next       int    // octets of it that Writes were posted for
	wrote      int    // message.wrote of immediate data posted next
	checked    int    // of them, those found placed when a later Send was delivered

	sends   []message // posted and not yet received by the remote
	pending []work    // posted and not known to be complete
	silent  int       // of them, unsignaled ones at the end
	failed  bool      // a completion said that work was not done: so will all further ones
	denied  bool      // one of them: its local memory was no longer registered
	asking  bool      // the first of them was a Read or an atomic

	left, posted, received, flushed, recvPosted int
	octets                                      uint64
	empty                                       [2]int     // Sends and Writes of no octets
	stats                                       rnic.Stats // at the end
}

func newPeer(wl *Workload, h *Host, c *Conn, host, index int) (*peer, error) {
	p := &peer{
		name: fmt.Sprintf("connection %d, host %d", index, host), wl: wl, host: h, end: &c.Ends[host],
		rng: rand.New(rand.NewPCG(wl.Seed<<3|uint64(index)<<1|uint64(host), 0x5eed)), left: wl.Messages,
	}
	if c.Acknowledged {
		p.late = rand.New(rand.NewPCG(wl.Seed<<3|uint64(index)<<1|uint64(host), 0x1a7e))
	}
	size := min(regionMax, max(4096, wl.Messages*wl.WriteMax/2))
	p.want = make([]byte, size)
	p.guarded = bytes.Repeat([]byte{canary}, size+2*canaryBytes)
	clear(p.guarded[canaryBytes : canaryBytes+size])
	return p, nil
}

// open makes the QueuePair and registers memory.
func (p *peer) open(c *Conn, host int, cq *rnic.CompletionQueue, pool *recvPool) (err error) {
	p.pd = p.host.Adapter.AllocPD()
	opt := rnic.QPOptions{PD: p.pd, SGEMax: p.end.SGEMax, InlineMax: p.end.InlineMax}
	if pool != nil {
		p.takeFrom(pool, &opt)
	}
	opt.SendCQ, opt.RecvCQ, opt.SendDepth, opt.RecvDepth = cq, cq, depth, recvDepth
	if p.qp, err = p.host.Adapter.CreateQP(opt); err != nil {
		return err
	}
	ro := rnic.RegisterOptions{Access: rnic.RemoteWrite | rnic.LocalWrite, Base: p.end.Base}
	if p.end.Tied {
		ro.For = p.qp
	}
	if p.region, err = opt.PD.RegisterWith(p.guarded[canaryBytes:len(p.guarded)-canaryBytes],
		ro); err != nil {
		return err
	}
	src := make([]byte, max(p.wl.WriteMax, p.wl.SendMax)+32<<10)
	for i := 0; i+8 <= len(src); i += 8 {
		// never 0: an octet not written
		binary.LittleEndian.PutUint64(src[i:], p.rng.Uint64()|0x0101010101010101)
	}
	if p.source, err = opt.PD.Register(src, 0); err != nil {
		return err
	}
	p.private = binary.BigEndian.AppendUint32(nil, uint32(p.region.STag()))
	p.private = append(p.private, src[:p.rng.IntN(privateMax-len(p.private))]...)
	if err := p.openAsks(p.pd, c, host); err != nil {
		return err
	}
	if err := p.openShapes(); err != nil {
		return err
	}
	return p.openInbox()
}

// openInbox posts receive buffers of the QueuePair's own.
func (p *peer) openInbox() (err error) {
	if p.pool != nil {
		return nil
	}
	if p.inbox, err = newScattered(p.pd, recvDepth, p.wl.SendMax); err != nil {
		return err
	}
	for i := range recvDepth {
		if err := p.postRecv(i); err != nil {
			return err
		}
	}
	return nil
}

// hear takes the private data of the remote's start-up frame: where this peer may write.
func (p *peer) hear(private []byte) error {
	if !bytes.Equal(private, p.remote.private) {
		return fmt.Errorf("%s: private data of %d octets differ from what was sent", p.name, len(private))
	}
	if len(private) > 0 {
		p.remoteSTag = rnic.STag(binary.BigEndian.Uint32(private))
	}
	return nil
}

func (p *peer) postRecv(i int) error {
	if p.pool != nil {
		return p.pool.post(i)
	}
	p.recvPosted++
	wr := p.inbox.scatter(p.shapes.rng, i, p.end.SGEMax)
	if len(wr.List) > 0 {
		p.shapes.did["scattered"]++
	}
	_, err := p.qp.PostRecv(wr)
	spoil(&wr)
	return err
}

func paint(b []byte) {
	for i := range b {
		b[i] = canary
	}
}

// fill posts while there is something to say and the remote has buffers, or may be late with them.
func (p *peer) fill() error {
	if err := p.postLate(); err != nil {
		return err
	}
	for p.left > 0 && p.qp.State() == rnic.RTS && len(p.pending) < depth/2 &&
		len(p.sends) < recvDepth {
		if err := p.post(); err != nil {
			return err
		}
	}
	return nil
}

// postLate posts the receive buffers that were kept back: at the latest some time after the remote
// has found none.
func (p *peer) postLate() error {
	if len(p.lateRecv) == 0 || p.done() || p.late.IntN(1+100*(recvDepth-len(p.lateRecv))) > 0 ||
		p.late.IntN(8) > 0 {
		return nil
	}
	for _, i := range p.lateRecv {
		if err := p.postRecv(i); err != nil {
			return err
		}
	}
	p.lateRecv = p.lateRecv[:0]
	return nil
}

// post sends one random message and plays it on the model. The last one is a Send, and signaled.
func (p *peer) post() error {
	if err := p.ask(); err != nil {
		return err
	}
	if err := p.takeBack(); err != nil {
		return err
	}
	p.left--
	wr := rnic.WorkRequest{ID: p.nextID(), Op: rnic.OpSend}
	p.posted++
	room := len(p.want) - p.next
	limit := p.wl.SendMax
	if p.left > 0 && room > 0 && p.rng.IntN(4) > 0 {
		wr.Op, limit = rnic.OpWrite, min(room, p.wl.WriteMax)
	}
	n := p.length(limit)
	octets := p.shape(&wr, n)
	defer spoil(&wr)
	wr.Signaled = p.left == 0 || p.silent == silentMax || p.rng.IntN(4) > 0
	p.silent++
	if wr.Signaled {
		p.silent = 0
	}
	p.octets += uint64(n)
	p.pending = append(p.pending, work{id: wr.ID, op: wr.Op, n: n, signaled: wr.Signaled,
		next: p.next})
	if wr.Op == rnic.OpSend {
		p.sends = append(p.sends, message{octets: octets, writes: p.next})
		if n == 0 {
			p.empty[0]++
		}
		return p.postSend(wr)
	}
	p.wrote = n
	if n == 0 {
		p.empty[1]++ // neither STag nor offset is looked at: any will do
		return p.postSend(wr)
	}
	wr.RemoteSTag, wr.RemoteOffset = p.remoteSTag, p.remote.end.Base+uint64(p.next)
	copy(p.want[p.next:], octets)
	p.next += n
	p.next = min(p.next+p.rng.IntN(64)*p.rng.IntN(2), len(p.want))
	return p.postSend(wr)
}

func (p *peer) postSend(wr rnic.WorkRequest) error {
	_, err := p.qp.PostSend(wr)
	return err
}

func (p *peer) nextID() uint64 {
	p.numbers++
	return recvIDs + p.numbers - 1
}

// length of a message: some of none, many small.
func (p *peer) length(limit int) int {
	switch p.rng.IntN(12) {
	case 0:
		return 0
	case 1, 2, 3:
		limit = min(limit, 100)
	}
	return p.rng.IntN(limit + 1)
}

// complete takes one completion of this peer's QueuePair.
func (p *peer) complete(c *rnic.Completion) error {
	if c.Op == rnic.OpRecv {
		return p.receive(c)
	}
	for len(p.pending) > 0 {
		w := p.pending[0]
		p.pending = p.pending[1:]
		switch {
		case w.id != c.ID && (w.signaled || p.failed):
			return fmt.Errorf("%s: completion %d where %d was due", p.name, c.ID-recvIDs, w.id-recvIDs)
		case w.id != c.ID:
			continue // unsignaled, and done
		case c.Op != w.op || c.Status == rnic.Success && (int(c.Len) != w.n || !w.signaled || p.failed):
			return fmt.Errorf("%s: completion %+v of %+v (work before it failed: %v)", p.name, *c,
				w, p.failed)
		}
		if c.Status != rnic.Success && !p.failed {
			p.failed = true
			p.asking = w.op == rnic.OpRead || w.op == rnic.OpFetchAdd || w.op == rnic.OpCompareSwap
		}
		p.denied = p.denied || c.Status == rnic.LocalProtection
		if c.Status != rnic.Success {
			return nil
		}
		if err := p.placed(&w); err != nil {
			return err
		}
		return p.answered(&w, c)
	}
	return fmt.Errorf("%s: completion %d of what was not posted, or twice", p.name, c.ID-recvIDs)
}

// placed is an error where, in acknowledged mode, w completed and a Write before it is not there.
func (p *peer) placed(w *work) error {
	if p.late == nil {
		return nil
	}
	if got, want := p.remote.region.Bytes()[:w.next], p.want[:w.next]; !bytes.Equal(got, want) {
		return fmt.Errorf("%s: octet %d was not written when a later request completed", p.remote.name,
			diffAt(got, want))
	}
	return nil
}

// receive compares one message with the next that the remote sent, and the Writes before it with
// the region.
func (p *peer) receive(c *rnic.Completion) error {
	if err := p.due(c); err != nil {
		return err
	}
	if c.Status != rnic.Success {
		p.flushed++
		return nil
	}
	p.received++
	r := p.remote
	if len(r.sends) == 0 || p.flushed > 0 {
		return fmt.Errorf("%s: a message that nobody sent, or after the end", p.name)
	}
	m := r.sends[0]
	r.sends = r.sends[1:]
	slot := p.inbox.gathered(int(c.ID))
	if m.immediate {
		c.Len = 0 // nothing of it is in the buffer
	} else if got := slot[:c.Len]; !bytes.Equal(got, m.octets) {
		return fmt.Errorf("%s: message %d of %d octets differs from what was sent (%d octets)", p.name,
			p.received, len(got), len(m.octets))
	}
	if k := firstNot(slot[c.Len:], canary); k >= 0 {
		return fmt.Errorf("%s: message %d of %d octets wrote octet %d of its buffer", p.name, p.received,
			c.Len, int(c.Len)+k)
	}
	if err := p.aside(&m, c); err != nil {
		return err
	}
	got, want := p.region.Bytes()[r.checked:m.writes], r.want[r.checked:m.writes]
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s: octet %d was not written when a later Send was delivered", p.name,
			r.checked+diffAt(got, want))
	}
	r.checked = max(r.checked, m.writes)
	if p.late != nil && p.pool == nil {
		p.lateRecv = append(p.lateRecv, int(c.ID))
		return nil
	}
	return p.postRecv(int(c.ID))
}

// idle: nothing more to post, to complete or to be received.
func (p *peer) idle() bool { return p.left == 0 && len(p.pending) == 0 && len(p.sends) == 0 }

// done: the QueuePair has left service.
func (p *peer) done() bool {
	select {
	case <-p.qp.Done():
		return true
	default:
		return false
	}
}

func firstNot(b []byte, v byte) int {
	for i := range b {
		if b[i] != v {
			return i
		}
	}
	return -1
}

func diffAt(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
