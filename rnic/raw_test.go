package rnic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// rawPeer is a TCP connection on which a test writes and reads octets of its own making: a peer that need not obey.
type rawPeer interface {
	write(b []byte) // a segment of its own over a Poller
	octets() []byte // all that came so far
	ended() error   // io.EOF after a FIN, stack.ErrReset after a RST, nil while the other side is open
	closeSend()
	reset()
}

// dialRaw connects to the rig's Listener from the client's host.
func (r *rig) dialRaw() rawPeer {
	r.t.Helper()
	if r.kind == sockets {
		nc, err := net.Dial("tcp", r.addr())
		require.NoError(r.t, err)
		return newRawSocket(r, nc.(*net.TCPConn))
	}
	p := r.newRawUpper(r.hosts[1])
	require.NoError(r.t, p.poller.Submit(func() {
		_, err := p.poller.Dial(netip.MustParseAddrPort(r.addr()), p)
		p.fail(err)
	}))
	r.until("a raw connection", p.connected)
	return p
}

// listenRaw makes a TCP listener on the server's host that knows nothing of MPA. accept waits for a connection.
func (r *rig) listenRaw() (addr string, accept func() rawPeer) {
	r.t.Helper()
	if r.kind == sockets {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(r.t, err)
		r.t.Cleanup(func() { require.NoError(r.t, l.Close()) })
		return l.Addr().String(), func() rawPeer {
			require.NoError(r.t, l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)))
			nc, err := l.Accept()
			require.NoError(r.t, err)
			return newRawSocket(r, nc.(*net.TCPConn))
		}
	}
	var got atomic.Pointer[rawUpper]
	require.NoError(r.t, r.hosts[0].poller.Submit(func() {
		require.NoError(r.t, r.hosts[0].poller.Listen(9000, 8, func(*stack.Conn) stack.Upper {
			p := r.newRawUpper(r.hosts[0])
			got.Store(p)
			return p
		}))
	}))
	r.step()
	return "10.9.0.1:9000", func() rawPeer {
		r.until("a raw connection", func() bool { return got.Load() != nil && got.Load().connected() })
		return got.Load()
	}
}

// rawUpper is a rawPeer on a Poller.
type rawUpper struct {
	testhost.Upper
	poller *stack.Poller
	turned bool // on the test's goroutine, so that what it does takes effect at once

	mu   sync.Mutex
	conn *stack.Conn
	out  [][]byte
	in   []byte
	end  error
	fin  bool // behind out
}

func (r *rig) newRawUpper(h *rigHost) *rawUpper {
	return &rawUpper{poller: h.poller, turned: r.kind == turned}
}

func (p *rawUpper) connected() bool { return p.connection() != nil }

func (p *rawUpper) connection() *stack.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn
}

func (p *rawUpper) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = err
}

// do calls f with the connection, if there still is one, where the Poller's goroutine is.
func (p *rawUpper) do(f func(*stack.Conn)) {
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

func (p *rawUpper) Established(c *stack.Conn) {
	p.mu.Lock()
	p.conn = c
	p.mu.Unlock()
	c.SetNoDelay(true)
}

func (p *rawUpper) Arrive(_ *stack.Conn, off uint64, _ mem.Buf, data []byte) stack.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	if off != uint64(len(p.in)) {
		return stack.Refused
	}
	p.in = append(p.in, data...)
	return stack.Taken
}

func (p *rawUpper) Pull(c *stack.Conn, dst []byte) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.out) == 0 {
		if p.fin {
			c.CloseSend()
		}
		return 0
	}
	n := copy(dst, p.out[0])
	if p.out[0] = p.out[0][n:]; len(p.out[0]) == 0 {
		p.out = p.out[1:]
	}
	return n
}

func (p *rawUpper) PeerClosed(*stack.Conn) { p.fail(io.EOF) }
func (p *rawUpper) Closed(_ *stack.Conn, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn = nil; err != nil {
		p.end = err
	}
}

func (p *rawUpper) write(b []byte) {
	p.mu.Lock()
	p.out = append(p.out, bytes.Clone(b))
	p.mu.Unlock()
	p.do((*stack.Conn).Send)
}

func (p *rawUpper) octets() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.in
}

func (p *rawUpper) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

func (p *rawUpper) closeSend() {
	p.mu.Lock()
	p.fin = true
	p.mu.Unlock()
	p.do((*stack.Conn).Send)
}

func (p *rawUpper) reset() { p.do(func(c *stack.Conn) { c.Abort() }) }

// rawSocket is a rawPeer over the kernel's TCP.
type rawSocket struct {
	t  *testing.T
	nc *net.TCPConn

	mu  sync.Mutex
	in  []byte
	end error
}

func newRawSocket(r *rig, nc *net.TCPConn) *rawSocket {
	require.NoError(r.t, nc.SetDeadline(time.Now().Add(patience)))
	p := &rawSocket{t: r.t, nc: nc}
	var wg sync.WaitGroup
	wg.Go(p.read)
	r.t.Cleanup(func() {
		_ = nc.Close() // the test may have closed it
		wg.Wait()
	})
	return p
}

func (p *rawSocket) read() {
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

func (p *rawSocket) write(b []byte) {
	_, _ = p.nc.Write(b) // the other side may be gone: the test looks at what it says
}

func (p *rawSocket) octets() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.in[:len(p.in):len(p.in)] // what is there does not change any more
}

func (p *rawSocket) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

func (p *rawSocket) closeSend() { require.NoError(p.t, p.nc.CloseWrite()) }

func (p *rawSocket) reset() {
	require.NoError(p.t, p.nc.SetLinger(0))
	require.NoError(p.t, p.nc.Close())
}

// rawInitiator is a raw peer that has come through start-up as Initiator, with a script to write FPDUs by.
type rawInitiator struct {
	rawPeer
	r  *rig
	tx mpa.Sender
	at int // octets of the server's stream that were looked at
}

// startRaw connects a raw Initiator to s. It asks for CRC; markers as said. The Responder's Reply is returned.
func (r *rig) startRaw(s *end, markers bool) (*rawInitiator, mpa.Frame) {
	r.t.Helper()
	p := &rawInitiator{rawPeer: r.dialRaw(), r: r}
	p.write(request(mpa.Frame{Rev: 1, CRC: true, Markers: markers}))
	require.NoError(r.t, r.request().Accept(r.ctx, s.qp, s.conn))
	f := p.reply(mpa.Reply)
	p.tx.Init(mpa.Mode{Markers: f.Markers, CRC: true})
	return p, f
}

func request(f mpa.Frame) []byte {
	f.Kind = mpa.Request
	return f.Append(nil)
}

// reply waits for the server's start-up frame.
func (p *rawInitiator) reply(kind mpa.FrameKind) mpa.Frame {
	p.r.t.Helper()
	f, n := waitFrame(p.r, p.rawPeer, kind)
	p.at = n
	return f
}

func waitFrame(r *rig, p rawPeer, kind mpa.FrameKind) (f mpa.Frame, n int) {
	r.t.Helper()
	r.until("a start-up frame", func() (ok bool) {
		end := p.ended() // before the octets, which may all be there then
		var err error
		f, n, err = mpa.ParseFrame(p.octets(), kind, mpa.PrivateDataMax)
		require.NoError(r.t, err)
		if n == 0 {
			require.NoError(r.t, end)
		}
		return n > 0
	})
	return f, n
}

// fpdu frames one DDP segment.
func (p *rawInitiator) fpdu(h ddp.Header, payload []byte) []byte {
	head := make([]byte, h.Len())
	h.Put(head)
	b := make([]byte, p.tx.Size(len(head)+len(payload)))
	p.tx.Put(b, [][]byte{head, payload})
	return b
}

// writeTo is the header of an RDMA Write of RFC 5040.
func writeTo(stag mem.STag, to uint64) ddp.Header {
	return ddp.Header{Tagged: true, Last: true, Version: 1, ULP: rdmap.Control(1, rdmap.OpWrite), STag: stag, TO: to}
}

// sendOf is the header of a Send's only segment.
func sendOf(msn uint32) ddp.Header {
	return ddp.Header{Last: true, Version: 1, ULP: rdmap.Control(1, rdmap.OpSend), QN: rdmap.QNSend, MSN: msn}
}

// next waits for the server's next FPDU, which has CRC and no markers, and returns its ULPDU.
func (p *rawInitiator) next() []byte {
	p.r.t.Helper()
	var ulpdu []byte
	p.r.until("an FPDU", func() bool {
		b := p.octets()[p.at:]
		if len(b) < 2 {
			return false
		}
		n := int(binary.BigEndian.Uint16(b))
		size := (2+n+3)&^3 + 4
		if len(b) < size {
			return false
		}
		require.Equal(p.r.t, crc32c(b[:size-4]), binary.LittleEndian.Uint32(b[size-4:]), "CRC")
		ulpdu = b[2 : 2+n]
		p.at += size
		return true
	})
	return ulpdu
}

func crc32c(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// untilEnded waits for the server's FIN or RST.
func (p *rawInitiator) untilEnded() error {
	p.r.t.Helper()
	return untilEnded(p.r, p.rawPeer)
}

func untilEnded(r *rig, p rawPeer) error {
	r.t.Helper()
	r.until("the end of the raw connection", func() bool { return p.ended() != nil })
	return p.ended()
}

// terminate waits for the server's Terminate.
func (p *rawInitiator) terminate() rdmap.Terminate {
	p.r.t.Helper()
	u := p.next()
	h, n, ok := ddp.Parse(u)
	require.True(p.r.t, ok)
	require.Equal(p.r.t, ddp.Header{
		Last: true, Version: 1, ULP: rdmap.Control(1, rdmap.OpTerminate), QN: rdmap.QNTerminate, MSN: 1,
	}, h)
	term, ok := rdmap.ParseTerminate(u[n:])
	require.True(p.r.t, ok)
	return term
}
