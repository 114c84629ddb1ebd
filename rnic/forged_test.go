package rnic

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// forgedTurns is how many turns of a microsecond an expectation may take: with segments that the
// test makes, it is the test that makes time pass.
const forgedTurns = 3

// segmentRig is an Adapter on a Poller in virtual time, at whose cable's other end no stack sits
// but the test, which makes every segment itself and need not obey anything. What the Adapter
// sends must be sound: frame checks that.
//
//	h := newSegmentRig(t, segmentRigConfig{})
//	s := h.newEnd(opts{})
//	c := h.startUp(3000, 1460, s)          // from port 3000; open: the handshake alone
//	c.inject(sendFPDU(1, "hello"))         // in order, as any peer
//	lo, hi := c.say(sendFPDU(2, "hello"))  // in its stream, and not sent
//	c.sendOctets(lo, hi, 0)                // any part of the stream, with any flags, at any time
//	h.turn(time.Microsecond)
type segmentRig struct {
	driver
	rng      *rand.Rand
	pool     *mem.Pool // the Adapter's
	poller   *stack.Poller
	adapter  *Adapter
	listener *Listener
	own      *mem.Pool // the test's
	queue    pmd.Queue
	mac      [2]inet.MAC // the Adapter's, ours
	conns    map[uint16]*forged
	iss      *tcp.Seq // of connections that are opened; nil: any
}

type segmentRigConfig struct {
	seed     uint64
	bufs     int // of the Adapter's pool
	connsMax int
	tcp      tcp.Config
}

// forged is a peer whose segments the test makes too: what it has to remember of its connection.
type forged struct {
	*peer
	h                *segmentRig
	port, serverPort uint16
	iss, irs         tcp.Seq
	synced           bool    // the Adapter's SYN was seen
	next             tcp.Seq // expected from the Adapter
	acked            tcp.Seq // by the Adapter
	ts, tsEcho       uint32
	stream           []byte    // what the peer has to say
	sent             int       // end of what style inOrder has sent
	lag              int       // octets that it is late in acknowledging, at most
	in               []byte    // what the Adapter said, in order
	flags            tcp.Flags // with its last octets
	fin              bool      // by the Adapter
	peerReset        bool      // by the Adapter
}

var (
	forgedNet  = netip.MustParsePrefix("10.9.0.1/24")
	serverInet = inet.AddrFrom(netip.MustParseAddr("10.9.0.1"))
	forgedInet = inet.AddrFrom(netip.MustParseAddr("10.9.0.2"))
)

func newSegmentRig(t testing.TB, cfg segmentRigConfig) *segmentRig {
	t.Helper()
	const mtu = 1500
	h := &segmentRig{driver: driver{t: t, time: int64(time.Second), left: forgedTurns + 1},
		rng: rand.New(rand.NewPCG(cfg.seed, 99)), conns: map[uint16]*forged{}}
	h.move = func() { h.turn(time.Microsecond) }
	h.pool, h.own = testhost.NewPool(t, cfg.bufs, mtu), testhost.NewPool(t, 1024, mtu)
	connection := must(wire.New(wire.Config{MTU: mtu}))
	server, peer := connection.Port(0), connection.Port(1)
	h.queue = must(peer.Open(0, h.own))
	h.mac = [2]inet.MAC{server.MAC(), peer.MAC()}
	h.poller = testhost.NewPoller(t, server, stack.Config{
		Name: "besieged", Pool: h.pool, MTU: mtu, Addr: forgedNet, ConnsMax: cfg.connsMax, TCP: cfg.tcp,
		Secret: [16]byte{1}, Clock: func() int64 { return h.time },
	})
	turn := func() { h.poller.Turn() }
	h.adapter = must(Open(Config{Pollers: []*stack.Poller{h.poller}, Manual: turn}))
	h.listener = must(h.adapter.Listen(t.Context(), ":7174", ListenOptions{}))
	h.announce()
	h.turn(time.Microsecond)
	return h
}

// turn lets d pass, turns the Poller once and looks at all that it sent.
func (h *segmentRig) turn(d time.Duration) {
	h.time += int64(d)
	h.poller.Turn()
	var bufs [64]mem.Buf
	for n := len(bufs); n == len(bufs); {
		n = h.queue.Rx(bufs[:])
		for _, b := range bufs[:n] {
			h.frame(h.own.Data(b))
		}
		h.own.FreeN(bufs[:n])
	}
}

func (h *segmentRig) turns(n int, d time.Duration) {
	for range n {
		h.turn(d)
	}
}

// frame checks a frame of the Adapter and remembers what a peer must.
func (h *segmentRig) frame(f []byte) {
	eth, b, drop := inet.ParseEthernet(f)
	require.Equal(h.t, inet.DropNone, drop)
	if eth.Type == inet.EtherTypeARP {
		h.announce()
		return
	}
	ip, b, drop := inet.ParseIPv4(b, false)
	require.Equal(h.t, inet.DropNone, drop)
	if ip.Proto != inet.ProtoTCP {
		return
	}
	require.Zero(h.t, inet.Checksum(b, inet.PseudoSum(ip.Src, ip.Dst, inet.ProtoTCP, len(b))),
		"TCP checksum")
	var s tcp.Segment
	require.Equal(h.t, tcp.DropNone, tcp.Parse(b, &s))
	if c := h.conns[s.DstPort]; c != nil {
		h.segment(c, &s, b[s.HdrLen:])
	}
}

func (h *segmentRig) segment(c *forged, s *tcp.Segment, text []byte) {
	switch {
	case s.Flags&(tcp.SYN|tcp.ACK) == tcp.SYN: // the Adapter dials
		if c.synced && c.serverPort != s.SrcPort {
			return
		}
		c.serverPort, c.irs, c.synced, c.next, c.acked = s.SrcPort, s.Seq, true, s.Seq+1, c.iss+1
		c.tsEcho = s.Options.TSval
		h.send(c, c.iss, c.next, tcp.SYN|tcp.ACK, 65535, h.synOptions(c, 1460), nil)
		return
	case s.Flags&tcp.RST != 0:
		c.peerReset = true
		return
	}
	if s.Options.HasTimestamps {
		c.tsEcho = s.Options.TSval
	}
	if s.Flags&tcp.SYN != 0 {
		c.irs, c.synced, c.next, c.acked = s.Seq, true, s.Seq+1, s.Ack
		return
	}
	if c.acked.Less(s.Ack) {
		c.acked = s.Ack
	}
	if s.Seq != c.next {
		return
	}
	if c.in = append(c.in, text...); len(text) > 0 {
		c.flags = s.Flags
	}
	if c.next += tcp.Seq(len(text)); s.Flags&tcp.FIN != 0 {
		c.next++
		c.fin = true
	}
}

// announce makes our MAC known.
func (h *segmentRig) announce() {
	h.transmit(inet.EtherTypeARP, inet.ARPLen, func(b []byte) {
		a := inet.RequestARP(h.mac[1], forgedInet, serverInet)
		a.Put(b)
	})
}

// transmit sends a frame whose n octets of payload fill writes.
func (h *segmentRig) transmit(typ uint16, n int, fill func(b []byte)) {
	h.t.Helper()
	b := h.own.Alloc()
	require.NotEqual(h.t, mem.NoBuf, b, "the test's own pool is empty")
	h.own.Desc(b).Len = uint32(inet.EthernetLen + n)
	f := h.own.Data(b)
	clear(f)
	eth := inet.Ethernet{Dst: h.mac[0], Src: h.mac[1], Type: typ}
	eth.Put(f)
	fill(f[inet.EthernetLen:])
	h.queue.Tx([]mem.Buf{b}) // a full cable loses it
	h.own.Free(b)
}

// send sends any segment on c.
func (h *segmentRig) send(c *forged, seq, ack tcp.Seq, flags tcp.Flags, window uint16,
	o tcp.Options, text []byte) {
	h.t.Helper()
	if c.serverPort == 0 {
		c.serverPort = rigPort
	}
	tr := tcp.Transmit{
		ID: tcp.ID{LocalPort: c.port, RemotePort: c.serverPort}, Seq: seq, Ack: ack, Flags: flags,
		Window: window, Options: o,
	}
	n := tr.HeaderLen() + len(text)
	h.transmit(inet.EtherTypeIPv4, 20+n, func(b []byte) {
		ip := inet.IPv4{
			DF: true, TTL: 64, Proto: inet.ProtoTCP, Src: forgedInet, Dst: serverInet, HdrLen: 20,
			TotalLen: 20 + n,
		}
		ip.Put(b)
		b = b[20:]
		tr.Put(b)
		copy(b[n-len(text):], text)
		binary.BigEndian.PutUint16(b[16:],
			inet.Checksum(b, inet.PseudoSum(forgedInet, serverInet, inet.ProtoTCP, n)))
	})
}

func noOptions() tcp.Options { return tcp.Options{WindowScale: -1} }

func (h *segmentRig) synOptions(c *forged, mss uint16) tcp.Options {
	return tcp.Options{
		MSS: mss, SACKPermitted: true, HasTimestamps: true, TSval: c.ts, TSecr: c.tsEcho, WindowScale: 7,
	}
}

func (c *forged) options() tcp.Options {
	o := noOptions()
	o.HasTimestamps, o.TSval, o.TSecr = true, c.ts, c.tsEcho
	return o
}

// answerer is a connection that the Adapter will dial to our port.
func (h *segmentRig) answerer(port uint16) *forged {
	c := &forged{h: h, port: port, iss: tcp.Seq(h.rng.Uint32()), ts: 1000}
	c.peer = &peer{peerStream: (*forgedStream)(c), d: &h.driver}
	if h.iss != nil {
		c.iss = *h.iss
	}
	h.conns[port] = c
	return c
}

// open does a handshake. synced is false when nobody answered.
func (h *segmentRig) open(port, mss uint16) *forged {
	h.t.Helper()
	c := h.answerer(port)
	h.send(c, c.iss, 0, tcp.SYN, 65535, h.synOptions(c, mss), nil)
	h.turns(2, time.Microsecond)
	if c.synced {
		h.send(c, c.iss+1, c.next, tcp.ACK, 65535, c.options(), nil)
		h.turn(time.Microsecond)
	}
	return c
}

// say appends FPDUs to what c has to say, [lo, hi) of its stream. Nothing is sent yet.
func (c *forged) say(fpdus ...fpdu) (lo, hi int) {
	lo = len(c.stream)
	c.stream = append(c.stream, c.frame(fpdus...)...)
	return lo, len(c.stream)
}

// sendOctets sends the octets [lo, hi) of c's stream in one segment, and flags.
func (c *forged) sendOctets(lo, hi int, flags tcp.Flags) {
	h := c.h
	h.t.Helper()
	h.send(c, c.seq(lo), c.next, tcp.ACK|flags, 65535, c.options(), c.stream[lo:hi])
}

func (c *forged) seq(at int) tcp.Seq { return c.iss + 1 + tcp.Seq(at) }

// place is how many octets of the stream the Adapter has acknowledged.
func (c *forged) place() int { return c.acked.Sub(c.iss + 1) }

// forgedStream is a forged peer as a stream: what it writes is sent in order, once.
type forgedStream forged

const forgedSegment = 1400

func (s *forgedStream) write(b []byte) {
	c := (*forged)(s)
	lo := len(c.stream)
	for c.stream = append(c.stream, b...); lo < len(c.stream); lo += forgedSegment {
		c.sendOctets(lo, min(lo+forgedSegment, len(c.stream)), 0)
	}
}

func (s *forgedStream) octets() []byte { return s.in }

func (s *forgedStream) ended() error {
	switch {
	case s.peerReset:
		return stack.ErrReset
	case s.fin:
		return io.EOF
	}
	return nil
}

func (s *forgedStream) closeSend() {
	(*forged)(s).sendOctets(len(s.stream), len(s.stream), tcp.FIN)
}

func (s *forgedStream) reset() {
	c := (*forged)(s)
	c.h.send(c, c.seq(len(c.stream)), c.next, tcp.RST|tcp.ACK, 0, c.options(), nil)
}

// startUp opens a connection and has it accepted by e. What comes next in its stream is FPDUs.
func (h *segmentRig) startUp(port, mss uint16, e *end) *forged {
	h.t.Helper()
	c := h.open(port, mss)
	require.True(h.t, c.synced, "no answer to our SYN")
	c.stream = request(mpa.Frame{Rev: 1, CRC: true})
	c.sendOctets(0, len(c.stream), 0)
	h.turn(time.Microsecond)
	req := h.listener.Poll()
	require.NotNil(h.t, req)
	require.NoError(h.t, req.Accept(h.t.Context(), e.qp, e.conn))
	h.turns(2, time.Microsecond)
	c.expectReply()
	return c
}

// newEnd is an end of the Adapter's, without memory.
func (h *segmentRig) newEnd(opt opts) *end {
	h.t.Helper()
	return h.bareEnd(h.adapter, opt)
}

// tooBig is an ICMP message that says a segment at seq did not fit into mtu.
func (h *segmentRig) tooBig(c *forged, mtu uint16, seq tcp.Seq) {
	const n = 8 + 20 + 8 // ICMP, and the front of the datagram it is about
	h.transmit(inet.EtherTypeIPv4, 20+n, func(b []byte) {
		ip := inet.IPv4{TTL: 64, Proto: inet.ProtoICMP, Src: forgedInet, Dst: serverInet, HdrLen: 20,
			TotalLen: 20 + n}
		ip.Put(b)
		m := b[20:]
		m[0], m[1] = 3, 4
		binary.BigEndian.PutUint16(m[6:], mtu)
		about := inet.IPv4{TTL: 64, Proto: inet.ProtoTCP, Src: serverInet, Dst: forgedInet, HdrLen: 20,
			TotalLen: 1500}
		about.Put(m[8:])
		binary.BigEndian.PutUint16(m[28:], c.serverPort)
		binary.BigEndian.PutUint16(m[30:], c.port)
		binary.BigEndian.PutUint32(m[32:], uint32(seq))
		binary.BigEndian.PutUint16(m[2:], inet.Checksum(m, 0))
	})
}
