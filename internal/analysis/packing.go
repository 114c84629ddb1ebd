package analysis

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// Messages is a crowd of RDMA Writes of one length from one QueuePair to another, whole hosts in
// virtual time.
type Messages struct {
	Octets  int // of each
	Count   int
	Packing rnic.Packing
	Markers bool
	Alone   bool // the next is posted when the last has gone; else all at once
}

// Segments is what became of them.
type Segments struct {
	EMSS    int
	Sent    int // segments with octets of the messages' FPDUs
	Octets  int // of their payload
	Answers int // frames that came back: ACKs
}

// Minimum is how many segments a TCP needs that cuts the same octets wherever it likes.
func (s Segments) Minimum() int { return (s.Octets + s.EMSS - 1) / s.EMSS }

// MessageFor is the length of a Write that makes one FPDU of so many octets, without markers.
func MessageFor(fpdu int) int { return fpdu - mpa.HeaderLen - ddp.TaggedLen - mpa.CRCLen }

const (
	packingPort = "7174"
	frameOctets = inet.EthernetLen + inet.IPv4Len + 20 + tcpOpts // in front of a payload
	regionMax   = 1 << 20
)

// pair is two hosts with a connection: 1 writes to 0.
type pair struct {
	*hosts
	qp   [2]*rnic.QueuePair
	cq   *rnic.CompletionQueue // of the writer
	src  *rnic.MemoryRegion
	stag rnic.STag
}

// Run sends the messages and counts segments. An error says that the connection failed: it must
// not.
func (m Messages) Run() (Segments, error) {
	h, err := newHosts()
	if err != nil {
		return Segments{}, err
	}
	p := &pair{hosts: h}
	if err := p.connect(m); err != nil {
		return Segments{}, err
	}
	before, answers := p.sent(1), p.sent(0)
	if err := p.post(m); err != nil {
		return Segments{}, err
	}
	after := p.sent(1)
	s := Segments{Sent: after.segments - before.segments,
		Answers: p.sent(0).segments - answers.segments}
	s.Octets = after.octets - before.octets - s.Sent*frameOctets
	st, err := p.qp[1].Stats(context.Background())
	s.EMSS = st.TCP.EMSS
	if err == nil && st.TCP.Retransmits > 0 {
		err = fmt.Errorf("analysis: %d segments sent again over a good cable", st.TCP.Retransmits)
	}
	return s, err
}

// traffic of a host: segments, and their octets with all headers.
type traffic struct{ segments, octets int }

func (p *pair) sent(host int) traffic {
	var c stack.Counters
	p.pollers[host].Snapshot(&c)
	arp := c.ARPRequests + c.ARPReplies // the only frames that are no segments
	return traffic{int(c.TxFrames - arp), int(c.TxOctets - arp*(inet.EthernetLen+inet.ARPLen))}
}

// connect makes both ends: host 1 dials host 0, which tells in its private data where to write.
func (p *pair) connect(m Messages) error {
	ctx := context.Background()
	var regions [2]*rnic.MemoryRegion
	for i, a := range p.adapters {
		pd := a.AllocPD()
		cq, err := a.CreateCQ(2*m.Count + 2)
		if err != nil {
			return err
		}
		p.cq = cq // the writer is made last
		if p.qp[i], err = a.CreateQP(
			rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq, SendDepth: m.Count}); err != nil {
			return err
		}
		if regions[i], err = pd.Register(make([]byte, regionMax),
			rnic.RemoteWrite|rnic.LocalWrite); err != nil {
			return err
		}
	}
	p.src = regions[1]
	l, err := p.adapters[0].Listen(ctx, ":"+packingPort, rnic.ListenOptions{})
	if err != nil {
		return err
	}
	conn := rnic.ConnParam{Packing: m.Packing, NoMarkers: !m.Markers}
	if err := p.qp[1].StartConnect(ctx, hostAddr(0)+":"+packingPort, conn); err != nil {
		return err
	}
	accepted := false
	err = p.until(func() bool {
		if req := l.Poll(); req != nil {
			conn.PrivateData = binary.BigEndian.AppendUint32(nil, uint32(regions[0].STag()))
			err = req.Accept(ctx, p.qp[0], conn)
			accepted = true
		}
		return err != nil || accepted && p.qp[1].State() != rnic.Connecting
	})
	if err != nil || p.qp[1].State() != rnic.RTS {
		return fmt.Errorf("analysis: no connection, %v: %w", p.qp[1].State(), err)
	}
	p.stag = rnic.STag(binary.BigEndian.Uint32(p.qp[1].PeerPrivateData()))
	return p.pass()
}

// post posts the messages, and waits until all have been sent and acknowledged.
func (p *pair) post(m Messages) error {
	var done [64]rnic.Completion
	completed := 0
	poll := func() bool {
		for n := p.cq.Poll(done[:]); n > 0; n = p.cq.Poll(done[:]) {
			for _, c := range done[:n] {
				if c.Status != rnic.Success {
					panic("analysis: a Write failed")
				}
			}
			completed += n
		}
		return completed == m.Count
	}
	for i := range m.Count {
		wr := rnic.WorkRequest{ID: uint64(i), Op: rnic.OpWrite, Local: p.src.Slice(0, m.Octets),
			Signaled: true, RemoteSTag: p.stag}
		if _, err := p.qp[1].PostSend(wr); err != nil {
			return err
		}
		if !m.Alone {
			continue
		}
		if err := p.until(func() bool { poll(); return completed > i }); err != nil {
			return err
		}
	}
	if err := p.until(poll); err != nil {
		return err
	}
	return p.pass()
}
