package rnic

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// peerDials connects to the rig's Listener from the client's host.
func (r *rig) peerDials() *peer {
	r.t.Helper()
	if r.kind == sockets {
		nc, err := net.Dial("tcp", r.addr())
		require.NoError(r.t, err)
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
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(r.t, err)
		r.t.Cleanup(func() { require.NoError(r.t, l.Close()) })
		return l.Addr().String(), func() *peer {
			require.NoError(r.t, l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)))
			nc, err := l.Accept()
			require.NoError(r.t, err)
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
	p := r.peerDials()
	p.write(request(mpa.Frame{Rev: 1, CRC: true, Markers: markers}))
	require.NoError(r.t, r.request().Accept(r.ctx, s.qp, s.conn))
	f := p.expectFrame(mpa.Reply)
	p.start(mpa.Mode{Markers: f.Markers, CRC: true})
	return p, f
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

// pullOne is Pull of one segment, and returns how many octets it has.
func pullOne(u stack.Upper, dst []byte) int {
	room := [][]byte{dst[:len(dst):len(dst)]}
	if u.Pull(room).N == 0 {
		return 0
	}
	return len(room[0])
}

// pollerStream is a peerStream on a Poller.
type pollerStream struct {
	testhost.Upper
	poller *stack.Poller
	turned bool // on the test's goroutine, so that what it does takes effect at once

	mu   sync.Mutex
	conn *stack.Conn
	out  [][]byte
	in   []byte
	end  error
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

func (p *pollerStream) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = err
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

func (p *pollerStream) octets() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.in
}

func (p *pollerStream) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
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
	t  testing.TB
	nc *net.TCPConn

	mu  sync.Mutex
	in  []byte
	end error
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

func (p *socketStream) octets() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.in[:len(p.in):len(p.in)] // what is there no longer changes
}

func (p *socketStream) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

func (p *socketStream) closeSend() { require.NoError(p.t, p.nc.CloseWrite()) }

func (p *socketStream) reset() {
	require.NoError(p.t, p.nc.SetLinger(0))
	require.NoError(p.t, p.nc.Close())
}
