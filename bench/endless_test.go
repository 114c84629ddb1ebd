package bench

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/crc32c"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/tcp"
)

// The frames of the far end of an endless device: IPv4 and TCP without options. The segment
// is full with one FPDU, a tagged DDP segment of piece octets.
const (
	endlessMTU   = 1500
	endlessMSS   = endlessMTU - 40
	headersLen   = pmd.EthernetLen + 40
	piece        = 1440 // endlessMSS - length, tagged header, CRC
	pieces       = 48   // of a message that is sourced
	pieceMessage = pieces * piece
)

// endless is a device whose queues have a far end each, which costs next to nothing, so
// that it limits nothing: it answers ARP, TCP's and MPA's start-up, and then
//
//	sinks    what it is sent: one ACK for each burst of a connection
//	sources  frames that were made before, in Bufs that the device keeps, with the sequence number
//	         written into them; never more than the window allows
//
// Frames that answer a queue's come in on that queue, as with RSS and a dial that hashes home. The
// sums of IPv4 and TCP are said to be good. A queue belongs to its Poller's goroutine, except for
// octets.
type endless struct{ queues []*endlessQueue }

func newEndless(n int) *endless {
	e := &endless{}
	for range n {
		e.queues = append(e.queues, &endlessQueue{})
	}
	return e
}

func (e *endless) Name() string { return "endless" }
func (e *endless) MAC() [6]byte { return [6]byte{2, 5: 1} }
func (e *endless) Close() error { return nil }
func (e *endless) Caps() pmd.Caps {
	return pmd.Caps{MTU: endlessMTU, Queues: len(e.queues), RxChecksum: true, TxChecksum: true}
}

// Open reserves Bufs for the frames of four connections.
func (e *endless) Open(i int, pool *mem.Pool) (_ pmd.Queue, err error) {
	q := e.queues[i]
	q.pool = pool
	q.first, err = pool.Reserve(endlessConns * pieces)
	q.home = make([]bool, endlessConns*pieces)
	return q, err
}

// endlessConns is how many connections a queue may have.
const endlessConns = 4

var farMAC = []byte{2, 0, 0, 0, 0, 0xee}

// endlessQueue is one queue and its far end.
type endlessQueue struct {
	octets  atomic.Uint64 // of payload that were taken from us, or acknowledged by us
	_       [56]byte
	pool    *mem.Pool
	n       pmd.Counters
	first   mem.Buf // of those reserved
	home    []bool  // by Buf - first: it can be filled again
	back    [64]mem.Buf
	peers   []*farPeer
	next    int      // whose turn it is to source
	answers [][]byte // to be received, copied
	verify  bool     // look at every octet; not while time is taken
	failed  error
}

// farPeer is the far end of a connection.
type farPeer struct {
	port        uint16 // the near end's
	ack         []byte // the frame of its ACK
	edge        uint32 // next octet it wants
	due         bool   // an ACK is due
	request     []byte // of MPA's start-up so far
	seq, una    uint32 // its next octet, and the first one that is not acknowledged
	window      uint32
	windowShift uint8
	started     bool

	frames []mem.Buf // to source, in their order; none: it sinks
	at     int
	paused bool

	mirror   []byte // what Writes placed, while verifying
	mirrored int
}

func (q *endlessQueue) Counters() pmd.Counters { return q.n }

func (q *endlessQueue) fail(format string, args ...any) {
	if q.failed == nil {
		q.failed = fmt.Errorf(format, args...)
	}
}

func (q *endlessQueue) Tx(bufs []mem.Buf) int {
	for _, b := range bufs {
		q.take(q.pool.Data(b))
	}
	q.n.TxFrames += uint64(len(bufs))
	return len(bufs)
}

func (q *endlessQueue) take(f []byte) {
	switch {
	case f[12] == 8 && f[13] == 6:
		q.answerARP(f)
	case f[23] != 6:
	case f[47]&byte(tcp.SYN) != 0:
		q.answerSYN(f)
	default:
		port := binary.BigEndian.Uint16(f[34:])
		for _, p := range q.peers {
			if p.port == port {
				q.segment(p, f)
			}
		}
	}
}

func (q *endlessQueue) segment(p *farPeer, f []byte) {
	octets := uint64(0)
	if ack := binary.BigEndian.Uint32(f[42:]); int32(ack-p.una) > 0 {
		octets = uint64(ack-p.una) * piece / endlessMSS
		p.una = ack
	}
	p.window = uint32(binary.BigEndian.Uint16(f[48:])) << p.windowShift
	head := headersLen - 20 + int(f[46]>>4)*4
	end := pmd.EthernetLen + int(binary.BigEndian.Uint16(f[16:]))
	switch seq := binary.BigEndian.Uint32(f[38:]); {
	case end == head:
	case seq != p.edge:
		// nothing is lost here, so nothing is sent again
		q.fail("a segment at %d, %d comes next", seq, p.edge)
	default:
		payload := f[head:end]
		p.edge += uint32(len(payload))
		p.due = true
		if !p.started {
			q.startUp(p, payload)
			return
		}
		if p.frames == nil {
			octets += uint64(len(payload)) * piece / endlessMSS
		}
		if q.verify {
			q.place(p, payload)
		}
	}
	if octets > 0 {
		q.octets.Store(q.octets.Load() + octets)
	}
}

// place takes a segment apart: whole FPDUs, each with its CRC, of RDMA Writes into the mirror.
func (q *endlessQueue) place(p *farPeer, payload []byte) {
	for len(payload) > 0 {
		n := int(binary.BigEndian.Uint16(payload))
		size := (2+n+3)&^3 + 4
		if size > len(payload) {
			q.fail("an FPDU of %d octets ends beyond its segment", size)
			return
		}
		if crc32c.Update(0, payload[:size-4]) != binary.LittleEndian.Uint32(payload[size-4:]) {
			q.fail("the CRC of an FPDU is wrong")
			return
		}
		h, at, ok := ddp.Parse(payload[2 : 2+n])
		data := payload[2+at : 2+n]
		if !ok || !h.Tagged || h.TO > uint64(len(p.mirror)) || len(data) > len(p.mirror)-int(h.TO) {
			q.fail("no RDMA Write into the mirror: %+v", h)
			return
		}
		p.mirrored += copy(p.mirror[h.TO:], data)
		payload = payload[size:]
	}
}

func (q *endlessQueue) answerARP(f []byte) {
	r := append([]byte(nil), f[:42]...)
	copy(r[0:6], f[6:12])
	copy(r[6:12], farMAC)
	r[21] = 2
	copy(r[22:28], farMAC)
	copy(r[28:32], f[38:42])
	copy(r[32:42], f[22:32])
	q.answers = append(q.answers, r)
}

// reverse is the headers of f, from IPv4 on without options, the other way round.
func reverse(f []byte) []byte {
	r := append([]byte(nil), f[:headersLen]...)
	copy(r[0:6], f[6:12])
	copy(r[6:12], f[0:6])
	copy(r[26:30], f[30:34])
	copy(r[30:34], f[26:30])
	copy(r[34:36], f[36:38])
	copy(r[36:38], f[34:36])
	return r
}

// answerSYN takes a connection: with a window scale as large as can be, without timestamps and
// SACK.
func (q *endlessQueue) answerSYN(f []byte) {
	p := &farPeer{port: binary.BigEndian.Uint16(f[34:]), edge: binary.BigEndian.Uint32(f[38:]) + 1,
		seq: 1001, una: 1001}
	for at := headersLen; at < len(f) && f[at] != 0; {
		if f[at] == 1 {
			at++
			continue
		}
		if f[at] == 3 {
			p.windowShift = f[at+2]
		}
		at += int(f[at+1])
	}
	r := append(reverse(f), 2, 4, endlessMSS>>8, endlessMSS&0xff, 1, 3, 3, 14)
	binary.BigEndian.PutUint16(r[16:], 48)
	binary.BigEndian.PutUint32(r[38:], p.seq-1)
	binary.BigEndian.PutUint32(r[42:], p.edge)
	r[46], r[47] = 7<<4, byte(tcp.SYN|tcp.ACK)
	binary.BigEndian.PutUint16(r[48:], 65535)
	q.answers = append(q.answers, r)
	p.ack = append([]byte(nil), r[:headersLen]...)
	binary.BigEndian.PutUint16(p.ack[16:], 40)
	p.ack[46], p.ack[47] = 5<<4, byte(tcp.ACK)
	q.peers = append(q.peers, p)
}

// startUp answers MPA's Request: CRCs, no markers.
func (q *endlessQueue) startUp(p *farPeer, payload []byte) {
	p.request = append(p.request, payload...)
	req, n, err := mpa.ParseFrame(p.request, mpa.Request, mpa.PrivateDataMax)
	if n == 0 && err == nil {
		return
	}
	party := mpa.Party{Dialects: mpa.FramedDialects, CRC: true}
	var rep mpa.Frame
	if err == nil {
		rep, _, err = party.Answer(&req, nil)
	}
	if err != nil || req.Markers || n < len(p.request) {
		q.fail("a Request that cannot be served: %+v: %v", req, err)
		return
	}
	p.started, p.due = true, false
	q.answers = append(q.answers, p.data(rep.Append(nil)))
}

// data is a segment of p's.
func (p *farPeer) data(payload []byte) []byte {
	r := append(append([]byte(nil), p.ack...), payload...)
	binary.BigEndian.PutUint16(r[16:], uint16(len(r)-pmd.EthernetLen))
	binary.BigEndian.PutUint32(r[38:], p.seq)
	binary.BigEndian.PutUint32(r[42:], p.edge)
	p.seq += uint32(len(payload))
	return r
}

// feed has the queue's i-th connection source RDMA Writes of message, over and over, from now on.
func (q *endlessQueue) feed(i int, stag mem.STag, base uint64, message []byte) {
	p := q.peers[i]
	var s mpa.Sender
	s.Init(mpa.Mode{CRC: true})
	for k := range pieces {
		b := q.first + mem.Buf(i*pieces+k)
		h := ddp.Header{Tagged: true, Last: k == pieces-1, Version: 1,
			ULP: rdmap.Control(1, rdmap.OpWrite), STag: stag, TO: base + uint64(k*piece)}
		ulpdu := make([]byte, h.Len()+piece)
		h.Put(ulpdu)
		copy(ulpdu[h.Len():], message[k*piece:])
		segment := make([]byte, s.Size(len(ulpdu)))
		s.Put(segment, [][]byte{ulpdu})
		frame := append(append([]byte(nil), p.ack...), segment...)
		binary.BigEndian.PutUint16(frame[16:], uint16(len(frame)-pmd.EthernetLen))
		binary.BigEndian.PutUint32(frame[42:], p.edge)
		copy(q.pool.Slot(b)[q.pool.Headroom():], frame)
		q.home[b-q.first] = true
		p.frames = append(p.frames, b)
	}
}

func (q *endlessQueue) Rx(bufs []mem.Buf) (n int) {
	for {
		back := q.back[:q.pool.TakeReturned(q.back[:])]
		for _, b := range back {
			q.home[b-q.first] = true
		}
		if len(back) < len(q.back) {
			break
		}
	}
	for n < len(bufs) && len(q.answers) > 0 && q.copied(bufs, &n, q.answers[0]) {
		q.answers = q.answers[:copy(q.answers, q.answers[1:])]
	}
	for _, p := range q.peers {
		if p.due && n < len(bufs) {
			binary.BigEndian.PutUint32(p.ack[38:], p.seq)
			binary.BigEndian.PutUint32(p.ack[42:], p.edge)
			p.due = !q.copied(bufs, &n, p.ack)
		}
	}
	if len(q.peers) > 0 {
		q.next++
		n += q.source(q.peers[q.next%len(q.peers)], bufs[n:])
	}
	q.n.RxFrames += uint64(n)
	return n
}

func (q *endlessQueue) copied(bufs []mem.Buf, n *int, frame []byte) bool {
	b := q.pool.Alloc()
	if b == mem.NoBuf {
		return false
	}
	d := q.pool.Desc(b)
	d.Len, d.Flags = uint32(len(frame)), mem.RxChecksumGood
	copy(q.pool.Data(b), frame)
	bufs[*n] = b
	*n++
	return true
}

// source hands out the next frames of p: as many as its window takes, and are at home.
func (q *endlessQueue) source(p *farPeer, bufs []mem.Buf) (n int) {
	for n < len(bufs) && len(p.frames) > 0 && !p.paused && p.seq+endlessMSS-p.una <= p.window {
		b := p.frames[p.at]
		if !q.home[b-q.first] {
			break
		}
		q.home[b-q.first] = false
		q.pool.Adopt(b)
		d := q.pool.Desc(b)
		d.Len, d.Flags = headersLen+endlessMSS, mem.RxChecksumGood
		binary.BigEndian.PutUint32(q.pool.Data(b)[38:], p.seq)
		p.seq += endlessMSS
		p.at = (p.at + 1) % len(p.frames)
		bufs[n] = b
		n++
	}
	return n
}
