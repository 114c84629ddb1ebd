package rnic

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// peerStream is a TCP connection on which a test writes and reads octets of its own making.
type peerStream interface {
	write(b []byte) // a segment of its own over a Poller
	octets() []byte // all that came so far
	ended() error   // io.EOF after a FIN, stack.ErrReset after a RST, nil while the other side is open
	closeSend()
	reset()
}

// peer is a connection's other end when the test writes what it says, which need not obey any rule.
type peer struct {
	peerStream
	d  *driver
	tx mpa.Sender // of what it injects
	at int        // octets of the stream it was sent that were expected, and came
}

// start has what p injects framed so.
func (p *peer) start(mode mpa.Mode) { p.tx.Init(mode) }

// frame is FPDUs as they come next in p's stream. Who calls it must send them.
func (p *peer) frame(fpdus ...fpdu) []byte {
	var stream []byte
	for _, f := range fpdus {
		stream = append(stream, p.frameULPDU(f.ulpdu())...)
	}
	return stream
}

func (p *peer) frameULPDU(ulpdu []byte) []byte {
	b := make([]byte, p.tx.Size(len(ulpdu)))
	p.tx.Put(b, [][]byte{ulpdu})
	return b
}

// inject sends FPDUs, all at once: in one segment, if that holds them.
func (p *peer) inject(fpdus ...fpdu) { p.write(p.frame(fpdus...)) }

// expectFrame waits for a start-up frame.
func (p *peer) expectFrame(kind mpa.FrameKind) mpa.Frame {
	p.d.t.Helper()
	var f mpa.Frame
	n := 0
	p.expect(fmt.Sprintf("a start-up frame of kind %v", kind), func() (bool, error) {
		var err error
		f, n, err = mpa.ParseFrame(p.octets()[p.at:], kind, mpa.PrivateDataMax)
		return n > 0, err
	})
	p.at += n
	return f
}

// expectReply waits for the Responder's Reply, and has what p injects framed as it asks.
func (p *peer) expectReply() mpa.Frame {
	p.d.t.Helper()
	f := p.expectFrame(mpa.Reply)
	p.start(mpa.Mode{Markers: f.Markers, CRC: true})
	return f
}

// nextFPDU waits for what comes next, which is an FPDU with CRC and without markers.
func (p *peer) nextFPDU() fpdu {
	p.d.t.Helper()
	return p.awaitFPDU("an FPDU")
}

func (p *peer) awaitFPDU(what string) fpdu {
	p.d.t.Helper()
	var ulpdu []byte
	size := 0
	p.expect(what, func() (bool, error) {
		var err error
		ulpdu, size, err = cutFPDU(p.octets()[p.at:])
		return size > 0, err
	})
	f, ok := parseFPDU(ulpdu)
	if !ok {
		p.d.t.Fatalf("want %s; an FPDU too short for DDP came: %x", what, ulpdu)
	}
	p.at += size
	return f
}

// expectFPDU waits for what comes next, which is this FPDU.
func (p *peer) expectFPDU(want fpdu) {
	p.d.t.Helper()
	if got := p.awaitFPDU(want.String()); !got.equal(want) {
		p.d.t.Fatalf("want\n\t%v\nhave\n\t%v", want, got)
	}
}

// expectTerminate waits for what comes next, which is this Terminate.
func (p *peer) expectTerminate(want rdmap.Terminate) {
	p.d.t.Helper()
	if got := p.awaitTerminate(want.String()); got != want {
		p.d.t.Fatalf("want a Terminate,\n\t%v\n\t%+v\nhave\n\t%v\n\t%+v", &want, want, &got, got)
	}
}

// expectTerminateFor waits for what comes next, which is a Terminate of this cause. It returns it.
func (p *peer) expectTerminateFor(cause rdmap.Cause) rdmap.Terminate {
	p.d.t.Helper()
	got := p.awaitTerminate(cause.String())
	if got.Cause != cause {
		p.d.t.Fatalf("want a Terminate for\n\t%v\nhave\n\t%v", cause, &got)
	}
	return got
}

func (p *peer) awaitTerminate(what string) rdmap.Terminate {
	p.d.t.Helper()
	f := p.awaitFPDU("a Terminate for " + what)
	term, ok := rdmap.ParseTerminate(f.payload)
	if !ok || f.Header != terminateFPDU("").Header {
		p.d.t.Fatalf("want a Terminate for %s, have\n\t%v", what, f)
	}
	return term
}

// expectNothing looks whether octets have come that no expectation was about.
func (p *peer) expectNothing() {
	p.d.t.Helper()
	if len(p.octets()) > p.at {
		p.d.t.Fatalf("want no octets: %s", p.state())
	}
}

// expectFIN waits for a FIN, before which no octets come that no expectation was about.
func (p *peer) expectFIN() {
	p.d.t.Helper()
	p.expectEnd(io.EOF, "a FIN")
	p.expectNothing()
}

// skipToFIN waits for a FIN, and takes all octets before it as expected.
func (p *peer) skipToFIN() {
	p.d.t.Helper()
	p.expectEnd(io.EOF, "a FIN")
	p.at = len(p.octets())
}

// untilFIN waits for a FIN, and returns all FPDUs before it.
func (p *peer) untilFIN() (all []fpdu) {
	p.d.t.Helper()
	for p.expectEnd(io.EOF, "a FIN"); p.at < len(p.octets()); {
		all = append(all, p.nextFPDU())
	}
	return all
}

// expectReset waits for a RST. What came before it does not matter.
func (p *peer) expectReset() {
	p.d.t.Helper()
	p.expectEnd(stack.ErrReset, "a RST")
}

func (p *peer) expectEnd(want error, what string) {
	p.d.t.Helper()
	if err := p.awaitEnd(what); !errors.Is(err, want) {
		p.d.t.Fatalf("want %s, have %v; %s", what, err, p.state())
	}
}

// untilEnded waits for a FIN or a RST.
func (p *peer) untilEnded() error {
	p.d.t.Helper()
	return p.awaitEnd("a FIN or a RST")
}

func (p *peer) awaitEnd(what string) error {
	p.d.t.Helper()
	p.d.expect(what, func() bool { return p.ended() != nil }, p.state)
	return p.ended()
}

// expect waits for octets in which came finds what it looks for. It fails as soon as they cannot
// come any more.
func (p *peer) expect(what string, came func() (bool, error)) {
	p.d.t.Helper()
	p.d.expect(what, func() bool {
		end := p.ended() // before the octets, which may all be there then
		ok, err := came()
		if err == nil && !ok {
			err = end
		}
		if err != nil {
			p.d.t.Fatalf("want %s: %v; %s", what, err, p.state())
		}
		return ok
	}, p.state)
}

// state is what a test is told of p when something did not come.
func (p *peer) state() string {
	text := "no octets came"
	if rest := p.octets()[p.at:]; len(rest) > 0 {
		text = "what came:\n\t" + showStream(rest)
	}
	if end := p.ended(); end != nil {
		text += fmt.Sprintf("\n\tthen the end: %v", end)
	}
	return text
}

// play runs a transcript from p's side, in hex: "> octets" it writes, "< octets" it is sent, from
// the connection's first octet. Nothing more has come when it writes, nor after the last line, if
// that is not what brings it.
func (p *peer) play(lines ...string) {
	p.d.t.Helper()
	p.at = 0
	for i, line := range lines {
		octets := unhex(p.d.t, line[2:])
		if line[0] == '>' {
			if len(p.octets()) > p.at {
				p.d.t.Fatalf("line %d, %s: octets before it; %s", i, line, p.state())
			}
			p.write(octets)
			continue
		}
		p.expectOctets(fmt.Sprintf("line %d, %s", i, line), octets)
	}
	if lines[len(lines)-1][0] == '<' {
		p.expectNothing()
	}
}

// expectOctets waits for what comes next, which is these octets.
func (p *peer) expectOctets(what string, want []byte) {
	p.d.t.Helper()
	p.expect(what, func() (bool, error) { return len(p.octets()) >= p.at+len(want), nil })
	got := p.octets()[p.at : p.at+len(want)]
	require.Equal(p.d.t, hex.EncodeToString(want), hex.EncodeToString(got), what)
	p.at += len(want)
}

const (
	hexReq = "4d504120494420526571204672616d65"
	hexRep = "4d504120494420526570204672616d65"
	hexRtr = "4d504120494420527472204672616d65"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b := must(hex.DecodeString(strings.ReplaceAll(s, " ", "")))
	return b
}

// withCRC appends the CRC to an FPDU in hex.
func withCRC(t testing.TB, s string) string {
	c := crc32c(unhex(t, s))
	return fmt.Sprintf("%s %02x%02x%02x%02x", s, byte(c), byte(c>>8), byte(c>>16), byte(c>>24))
}

// peerDials connects to the rig's Listener from the client's host.
func (r *rig) peerDials() *peer {
	r.t.Helper()
	if r.kind == sockets {
		nc := must(net.Dial("tcp", r.addr()))
		return r.newPeer(newSocketStream(r, nc.(*net.TCPConn)))
	}
	p := r.newPollerStream(r.hosts[1])
	require.NoError(r.t, p.poller.Submit(func() {
		var err error
		p.Conn, err = p.poller.Dial(netip.MustParseAddrPort(r.addr()), p)
		p.fail(err)
	}))
	r.until("a connection of the peer's", p.connected)
	return r.newPeer(p)
}

// peerListens makes a TCP listener on the server's host that knows nothing of MPA. accept waits
// for a connection.
func (r *rig) peerListens() (addr string, accept func() *peer) {
	r.t.Helper()
	if r.kind == sockets {
		l := must(net.Listen("tcp", "127.0.0.1:0"))
		r.t.Cleanup(func() { require.NoError(r.t, l.Close()) })
		return l.Addr().String(), func() *peer {
			require.NoError(r.t, l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)))
			nc := must(l.Accept())
			return r.newPeer(newSocketStream(r, nc.(*net.TCPConn)))
		}
	}
	var got atomic.Pointer[peer]
	require.NoError(r.t, r.hosts[0].poller.Submit(func() {
		require.NoError(r.t, r.hosts[0].poller.Listen(9000, 8, func(c *stack.Conn) stack.Upper {
			p := r.newPollerStream(r.hosts[0])
			p.Conn = c
			got.Store(r.newPeer(p))
			return p
		}))
	}))
	r.step()
	return "10.9.0.1:9000", func() *peer {
		r.until("a connection of the peer's", func() bool {
			p := got.Load()
			return p != nil && p.peerStream.(*pollerStream).connected()
		})
		return got.Load()
	}
}

func (r *rig) newPeer(s peerStream) *peer { return &peer{peerStream: s, d: &r.driver} }

// peerConnects connects a peer to s and brings it through start-up as Initiator. It asks for CRC;
// markers as said. The Responder's Reply is returned.
func (r *rig) peerConnects(s *end, markers bool) (*peer, mpa.Frame) {
	r.t.Helper()
	p := r.accepts(s, request(mpa.Frame{Rev: 1, CRC: true, Markers: markers}))
	return p, p.expectReply()
}

// served is an end of the server's and a peer that peerConnects, without markers.
func (r *rig) served(opt opts) (*end, *peer) {
	r.t.Helper()
	s := r.newEnd(r.server, opt)
	p, _ := r.peerConnects(s, false)
	return s, p
}

// served is a turned rig with what its served returns; responded, with what its responded returns.
func served(t *testing.T, opt opts) (r *rig, s *end, p *peer) {
	t.Helper()
	r = newRig(t, turned, rigConfig{})
	s, p = r.served(opt)
	return r, s, p
}

func responded(t *testing.T, opt opts) (r *rig, c *end, p *peer) {
	t.Helper()
	r = newRig(t, turned, rigConfig{})
	c, p = r.responded(opt)
	return r, c, p
}

// dialling is an end of the client's, and the peer that it connects to.
func (r *rig) dialling(opt opts) (*end, *peer) {
	r.t.Helper()
	c := r.newEnd(r.client, opt)
	return c, r.peerAccepts(c)
}

// accepts has s accept a peer that says frame.
func (r *rig) accepts(s *end, frame []byte) *peer {
	r.t.Helper()
	p := r.peerDials()
	p.write(frame)
	require.NoError(r.t, r.request().Accept(r.ctx, s.qp, s.conn))
	return p
}

// ends is the end of what p says, and then of e's connection.
func (p *peer) ends(e *end) {
	p.d.t.Helper()
	p.closeSend()
	e.awaitClosed()
}

func request(f mpa.Frame) []byte {
	f.Kind = mpa.Request
	return f.Append(nil)
}

// peerAccepts has c connect to a peer, and returns that before it was written to.
func (r *rig) peerAccepts(c *end) *peer {
	r.t.Helper()
	addr, accept := r.peerListens()
	require.NoError(r.t, c.qp.StartConnect(r.ctx, addr, c.conn))
	return accept()
}

// arriveOne is Arrive of one segment.
func arriveOne(u stack.Upper, off uint64, b mem.Buf, data []byte) stack.Verdict {
	_, v := u.Arrive(off, []mem.Buf{b}, [][]byte{data})
	return v
}

// offer is Arrive of octets at off, in a Buf of l's pool, which is given back unless l keeps it.
func offer(l *connect.Connection, off uint64, octets []byte) stack.Verdict {
	b := l.Pool.Alloc()
	slot := l.Pool.Slot(b)[l.Pool.Headroom():]
	v := arriveOne(l, off, b, slot[:copy(slot, octets)])
	if v != stack.Kept {
		l.Pool.Free(b)
	}
	return v
}

// incoming is what came of a stream, and its end.
type incoming struct {
	mu  sync.Mutex
	in  []byte
	end error
}

func (in *incoming) octets() []byte {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.in[:len(in.in):len(in.in)] // what is there no longer changes
}

func (in *incoming) ended() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.end
}

func (in *incoming) fail(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.end = err
}

// pollerStream is a peerStream on a Poller.
type pollerStream struct {
	testhost.Upper
	incoming
	poller *stack.Poller
	turned bool // on the test's goroutine, so that what it does takes effect at once

	// with mu of incoming
	conn *stack.Conn
	out  [][]byte
	fin  bool // after out
}

func (r *rig) newPollerStream(h *rigHost) *pollerStream {
	return &pollerStream{poller: h.poller, turned: r.kind == turned}
}

func (p *pollerStream) connected() bool { return p.connection() != nil }

func (p *pollerStream) connection() *stack.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn
}

// do calls f with the connection, if there still is one, where the Poller's goroutine is.
func (p *pollerStream) do(f func(*stack.Conn)) {
	do := func() {
		if c := p.connection(); c != nil {
			f(c)
		}
	}
	if p.turned {
		do()
	} else {
		_ = p.poller.Submit(do) // of a stopped Poller's connection there is nothing to be had
	}
}

func (p *pollerStream) Established() {
	p.mu.Lock()
	p.conn = p.Conn
	p.mu.Unlock()
	p.Conn.SetNoDelay(true)
}

func (p *pollerStream) Arrive(off uint64, _ []mem.Buf, data [][]byte) (int, stack.Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if off != uint64(len(p.in)) {
		return 1, stack.Refused
	}
	for _, octets := range data {
		p.in = append(p.in, octets...)
	}
	return len(data), stack.Taken
}

func (p *pollerStream) Pull(dst [][]byte) stack.Pulled {
	p.mu.Lock()
	defer p.mu.Unlock()
	return testhost.Fill(dst, p.fill)
}

// fill is Pull of one segment, which has octets of one write. mu is held.
func (p *pollerStream) fill(dst []byte) int {
	if len(p.out) == 0 {
		if p.fin {
			p.Conn.CloseSend()
		}
		return 0
	}
	n := copy(dst, p.out[0])
	if p.out[0] = p.out[0][n:]; len(p.out[0]) == 0 {
		p.out = p.out[1:]
	}
	return n
}

func (p *pollerStream) PeerClosed() { p.fail(io.EOF) }

func (p *pollerStream) Closed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn = nil; err != nil {
		p.end = err
	}
}

func (p *pollerStream) write(b []byte) {
	if len(b) == 0 { // a Pull of nothing would be taken for the end
		return
	}
	p.mu.Lock()
	p.out = append(p.out, bytes.Clone(b))
	p.mu.Unlock()
	p.do((*stack.Conn).Send)
}

func (p *pollerStream) closeSend() {
	p.mu.Lock()
	p.fin = true
	p.mu.Unlock()
	p.do((*stack.Conn).Send)
}

func (p *pollerStream) reset() { p.do(func(c *stack.Conn) { c.Abort() }) }

// socketStream is a peerStream over the kernel's TCP.
type socketStream struct {
	incoming
	t  testing.TB
	nc *net.TCPConn
}

func newSocketStream(r *rig, nc *net.TCPConn) *socketStream {
	require.NoError(r.t, nc.SetDeadline(time.Now().Add(patience)))
	p := &socketStream{t: r.t, nc: nc}
	var wg sync.WaitGroup
	wg.Go(p.read)
	r.t.Cleanup(func() {
		_ = nc.Close() // the test may have closed it
		wg.Wait()
	})
	return p
}

func (p *socketStream) read() {
	b := make([]byte, 4096)
	for {
		n, err := p.nc.Read(b)
		p.mu.Lock()
		p.in = append(p.in, b[:n]...)
		if err != nil {
			if p.end = err; !errors.Is(err, io.EOF) {
				p.end = transport.SocketError(err)
			}
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

func (p *socketStream) write(b []byte) {
	_, _ = p.nc.Write(b) // the other side may be gone: the test looks at what it says
}

func (p *socketStream) closeSend() { require.NoError(p.t, p.nc.CloseWrite()) }

func (p *socketStream) reset() {
	require.NoError(p.t, p.nc.SetLinger(0))
	require.NoError(p.t, p.nc.Close())
}
