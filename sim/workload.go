package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd/fault"
	"github.com/rnicd/rnicd/rnic"
)

// Workload is a random exchange over one connection, both ways at once.
type Workload struct {
	Config
	Messages   int // per side
	WriteMax   int // octets of one Write
	SendMax    int // octets of one Send
	NoMarkers  bool
	NoCRC      bool
	DropBadCRC bool
	Limit      time.Duration // of virtual time, default 10 min
}

// Outcome is what a run counted.
type Outcome struct {
	Stats   [2]rnic.Stats
	Virtual time.Duration
	Octets  uint64 // written and sent, both ways
}

const (
	regionBytes = 2 << 20
	canaryBytes = 4096
	canary      = 0xa5
	listenPort  = "7174"
	depth       = 32
	recvDepth   = 64
)

// peer is one end of the workload, with the model of what the other end's memory must become.
type peer struct {
	host    *Host
	pd      *rnic.ProtectionDomain
	cq      *rnic.CompletionQueue
	qp      *rnic.QueuePair
	guarded []byte // region with canaries around it
	region  *rnic.MemoryRegion
	source  *rnic.MemoryRegion // random octets that Writes and Sends come from
	inbox   *rnic.MemoryRegion
	rng     *rand.Rand

	remote     *peer
	remoteSTag mem.STag
	want       []byte   // what the remote region must hold in the end
	sent       [][]byte // Sends posted, in order, that the remote has not received yet

	// Writes of one stream that overlap may be placed in any order (RFC 5040 section 5.5), so none do.
	next int

	left       int // messages still to post
	posted     uint64
	completed  uint64 // send-side completions, in order
	received   int
	recvPosted int
	flushed    int
	octets     uint64
}

// Run plays the workload in a World of its own and checks the outcome. The error says what the oracle found.
func (wl Workload) Run() (Outcome, error) {
	if wl.Limit == 0 {
		wl.Limit = 10 * time.Minute
	}
	// Start-up frames have no CRC: damage that the TCP checksum does not show would go unseen there.
	calm := wl.Config
	calm.Faults.Corrupt, calm.Faults.Swap = 0, 0
	w, err := New(calm)
	if err != nil {
		return Outcome{}, err
	}
	begin := w.Now()
	p, err := wl.connect(w)
	if err != nil {
		return Outcome{}, err
	}
	for _, h := range w.Hosts {
		if err := h.faulty.Set(wl.Faults, fault.Faults{}); err != nil {
			return Outcome{}, err
		}
	}
	err = w.Run(wl.Limit, func() bool {
		err = errors.Join(p[0].turn(&wl), p[1].turn(&wl))
		return err != nil || p[0].idle() && p[1].idle()
	})
	if e := p.check(err); e != nil {
		return Outcome{}, e
	}
	out := Outcome{Virtual: time.Duration(w.Now() - begin), Octets: p[0].octets + p[1].octets}
	for i := range p {
		if out.Stats[i], err = p[i].qp.Stats(context.Background()); err != nil {
			return out, err
		}
	}
	return out, p.close(w)
}

type peers [2]*peer

// check compares everything once both sides are idle. err is what already went wrong.
func (p peers) check(err error) error {
	for i, x := range p {
		if e := x.qp.Err(); e != nil {
			err = errors.Join(err, fmt.Errorf("host %d: connection ended: %w", i, e))
		}
	}
	if err != nil {
		return err
	}
	for i, x := range p {
		if got := x.remote.region.Bytes(); !bytes.Equal(got, x.want) {
			return fmt.Errorf("host %d: memory differs at octet %d from what was written", 1-i, diffAt(got, x.want))
		}
		for k, b := range x.guarded {
			if (k < canaryBytes || k >= canaryBytes+regionBytes) && b != canary {
				return fmt.Errorf("host %d: octet %d outside the region was written", i, k-canaryBytes)
			}
		}
	}
	return nil
}

// close ends the connection from the first side and looks for leaks.
func (p peers) close(w *World) error {
	p[0].qp.Disconnect()
	done := func(q *rnic.QueuePair) bool {
		select {
		case <-q.Done():
			return true
		default:
			return false
		}
	}
	if err := w.Run(10*time.Minute, func() bool { return done(p[0].qp) && done(p[1].qp) }); err != nil {
		return err
	}
	for i, x := range p {
		if err := x.qp.Err(); err != nil {
			return fmt.Errorf("host %d: orderly close: %w", i, err)
		}
		x.drain()
		if x.flushed != x.recvPosted-x.received {
			return fmt.Errorf("host %d: %d receives flushed, %d were outstanding", i, x.flushed, x.recvPosted-x.received)
		}
	}
	err := w.Run(10*time.Minute, func() bool {
		return w.Hosts[0].Leaked()+w.Hosts[1].Leaked() == 0
	})
	if err != nil {
		return fmt.Errorf("%d and %d Bufs leaked: %w", w.Hosts[0].Leaked(), w.Hosts[1].Leaked(), err)
	}
	return nil
}

// connect makes both ends and their connection: host 1 dials host 0.
func (wl *Workload) connect(w *World) (p peers, err error) {
	for i, h := range w.Hosts {
		if p[i], err = wl.newPeer(h, wl.Seed<<1|uint64(i)); err != nil {
			return p, err
		}
	}
	p[0].remote, p[1].remote = p[1], p[0]
	ctx := context.Background()
	l, err := w.Hosts[0].Adapter.Listen(ctx, ":"+listenPort, rnic.ListenOptions{})
	if err != nil {
		return p, err
	}
	if err := p[1].qp.StartConnect(ctx, w.Hosts[0].Addr+":"+listenPort, p[1].advertisement()); err != nil {
		return p, err
	}
	var accepted bool
	err = w.Run(wl.Limit, func() bool {
		if req := l.Poll(); req != nil {
			p[0].remoteSTag = mem.STag(binary.BigEndian.Uint32(req.PrivateData()))
			err = req.Accept(ctx, p[0].qp, p[0].advertisement())
			accepted = true
		}
		return err != nil || accepted && p[1].qp.State() != rnic.Connecting
	})
	if err == nil && p[1].qp.State() != rnic.RTS {
		err = fmt.Errorf("connect: %w", p[1].qp.Err())
	}
	if err != nil {
		return p, err
	}
	p[1].remoteSTag = mem.STag(binary.BigEndian.Uint32(p[1].qp.PeerPrivateData()))
	// A Responder may not speak first: the Initiator's first message opens its half.
	return p, p[1].post(wl)
}

func (wl *Workload) newPeer(h *Host, seed uint64) (*peer, error) {
	p := &peer{host: h, rng: rand.New(rand.NewPCG(seed, 0x5eed)), left: wl.Messages, want: make([]byte, regionBytes)}
	p.pd = h.Adapter.AllocPD()
	var err error
	if p.cq, err = h.Adapter.CreateCQ(depth + recvDepth); err != nil {
		return nil, err
	}
	p.qp, err = h.Adapter.CreateQP(rnic.QPOptions{
		PD: p.pd, SendCQ: p.cq, RecvCQ: p.cq, SendDepth: depth, RecvDepth: recvDepth,
		NoMarkers: wl.NoMarkers, NoCRC: wl.NoCRC, DropBadCRC: wl.DropBadCRC,
	})
	if err != nil {
		return nil, err
	}
	p.guarded = bytes.Repeat([]byte{canary}, regionBytes+2*canaryBytes)
	clear(p.guarded[canaryBytes : canaryBytes+regionBytes])
	if p.region, err = p.pd.Register(p.guarded[canaryBytes:canaryBytes+regionBytes], rnic.RemoteWrite|rnic.LocalWrite); err != nil {
		return nil, err
	}
	src := make([]byte, regionBytes)
	for i := 0; i < len(src); i += 8 {
		binary.LittleEndian.PutUint64(src[i:], p.rng.Uint64())
	}
	if p.source, err = p.pd.Register(src, 0); err != nil {
		return nil, err
	}
	if p.inbox, err = p.pd.Register(make([]byte, recvDepth*wl.SendMax), rnic.LocalWrite); err != nil {
		return nil, err
	}
	for i := range recvDepth {
		if err := p.postRecv(i, wl.SendMax); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *peer) advertisement() []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(p.region.STag()))
}

func (p *peer) postRecv(slot, size int) error {
	p.recvPosted++
	return p.qp.PostRecv(rnic.WorkRequest{ID: uint64(slot), Local: p.inbox.Slice(slot*size, size)})
}

// turn is one round of the application: poll, check, post.
func (p *peer) turn(wl *Workload) error {
	if err := p.poll(wl); err != nil {
		return err
	}
	for p.left > 0 && p.posted-p.completed < depth/2 && len(p.sent) < recvDepth/2 {
		if err := p.post(wl); err != nil {
			return err
		}
	}
	return nil
}

const recvIDs = recvDepth // IDs below are receive slots, above send-side sequence numbers

func (p *peer) poll(wl *Workload) error {
	var cs [16]rnic.Completion
	for _, c := range cs[:p.cq.Poll(cs[:])] {
		if c.Status != rnic.Success {
			return fmt.Errorf("%v: %v %v", p.host.Addr, c.Op, c.Status)
		}
		if c.Op != rnic.OpRecv {
			if c.ID != recvIDs+p.completed {
				return fmt.Errorf("%v: completion %d where %d was due", p.host.Addr, c.ID-recvIDs, p.completed)
			}
			p.completed++
			continue
		}
		if err := p.receive(wl, c); err != nil {
			return err
		}
	}
	return nil
}

// receive compares one message with the next that the remote sent.
func (p *peer) receive(wl *Workload, c rnic.Completion) error {
	if c.ID != uint64(p.received%recvDepth) {
		return fmt.Errorf("%v: receive buffer %d completed, %d was due", p.host.Addr, c.ID, p.received%recvDepth)
	}
	p.received++
	if len(p.remote.sent) == 0 {
		return fmt.Errorf("%v: a message that nobody sent", p.host.Addr)
	}
	want := p.remote.sent[0]
	p.remote.sent = p.remote.sent[1:]
	off := int(c.ID) * wl.SendMax
	if got := p.inbox.Bytes()[off : off+int(c.Len)]; !bytes.Equal(got, want) {
		return fmt.Errorf("%v: message of %d octets differs from what was sent (%d octets)", p.host.Addr, len(got), len(want))
	}
	return p.postRecv(int(c.ID), wl.SendMax)
}

// post sends one random message and plays it on the model.
func (p *peer) post(wl *Workload) error {
	write := p.rng.IntN(4) > 0 && p.next+wl.WriteMax <= regionBytes
	limit := wl.SendMax
	if write {
		limit = wl.WriteMax
	}
	n := p.rng.IntN(limit + 1)
	if p.rng.IntN(3) == 0 {
		n = p.rng.IntN(min(limit, 100) + 1)
	}
	src := p.rng.IntN(regionBytes - n + 1)
	wr := rnic.WorkRequest{ID: recvIDs + p.posted, Local: p.source.Slice(src, n), Signaled: true}
	p.posted++
	p.left--
	p.octets += uint64(n)
	octets := p.source.Bytes()[src : src+n]
	if !write {
		p.sent = append(p.sent, octets)
		return p.qp.PostSend(wr)
	}
	dst := p.next
	p.next += n + p.rng.IntN(64)
	wr.RemoteSTag, wr.RemoteOffset = p.remoteSTag, uint64(dst)
	copy(p.want[dst:], octets)
	return p.qp.PostWrite(wr)
}

// idle: nothing more to post, to complete or to be received. Writes behind the last Send end with it or with the ACK.
func (p *peer) idle() bool {
	return p.left == 0 && p.posted == p.completed && len(p.sent) == 0 && bytes.Equal(p.remote.region.Bytes(), p.want)
}

// drain takes the completions that the end of the connection flushed.
func (p *peer) drain() {
	var cs [16]rnic.Completion
	for {
		n := p.cq.Poll(cs[:])
		if n == 0 {
			return
		}
		for _, c := range cs[:n] {
			if c.Op == rnic.OpRecv && c.Status == rnic.Flushed {
				p.flushed++
			}
		}
	}
}

func diffAt(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
