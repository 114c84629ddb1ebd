package engine

import (
	"math/rand/v2"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// accepts accepts the next request, and returns the event that comes of it.
func (l *listener) accepts(before func()) *ring.CMEvent {
	l.p.t.Helper()
	q := l.p.newQP()
	handle := l.request()
	mine, theirs := l.p.channel()
	l.p.do(ring.Adopt, handle, uint64(theirs), 2)
	before()
	l.p.do(ring.CMAccept, handle, q.handle, 4, 4)
	var b []byte
	until(func() bool { b = receive(mine); return b != nil })
	l.p.do(ring.CMDestroy, handle)
	l.p.do(ring.DestroyQP, q.handle)
	return (*ring.CMEvent)(unsafe.Pointer(&b[0]))
}

// asked is a connection to the listener that has sent a Request.
func (l *listener) asked(t *testing.T) *net.TCPConn {
	t.Helper()
	c := must(net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(l.addr)))(t)
	asks := mpa.Enhanced{PeerToPeer: true, RTR: mpa.RTRWrite, IRD: 1, ORD: 1}
	ask := mpa.Frame{Kind: mpa.Request, CRC: true, S: true, Rev: 2, PrivateData: asks.Append(nil)}
	must(c.Write(ask.Append(nil)))(t)
	return c
}

// A client that vanishes is one event to the listener's side, CONNECT_ERROR with one status, at
// whichever moment it goes: before it is accepted, or while it is.
func TestVanishedClient(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	vanish := func(t *testing.T, h Host, addr string, dev *rnic.Adapter) {
		p := newProgramOn(t, h)
		l := p.listen(addr)
		client := &peer{t, dev}
		for i := range 60 {
			far, connected := client.connect(l.addr)
			ev := l.accepts(func() {
				if i%2 == 0 { // before
					far.Abort()
					<-connected
					return
				}
				n := rng.IntN(300)
				go func() {
					for range n {
						runtime.Gosched()
					}
					far.Abort()
				}()
			})
			if i%2 == 1 {
				<-connected
				if ev.Type == cmEstablished {
					continue // it was faster
				}
			}
			require.EqualValues(t, cmConnectError, ev.Type, "time %d", i)
			require.Equal(t, syscall.ECONNRESET, syscall.Errno(-ev.Status), "time %d", i)
		}
		p.do(ring.CMDestroy, l.id)
	}
	t.Run("sockets", func(t *testing.T) {
		devs := testnic.Sockets(t)
		vanish(t, Host{Adapter: devs[0]}, "127.0.0.1:0", devs[1])
	})
	t.Run("own TCP", func(t *testing.T) {
		devs := testnic.Wired(t)
		vanish(t, Host{Adapter: devs[0], OwnTCP: true}, "10.9.0.1:0", devs[1])
	})
}

// The same of one that ends its connection in order, or by a reset, or halfway.
func TestVanishedStream(t *testing.T) {
	p := newProgram(t)
	l := p.listen("127.0.0.1:0")
	for name, vanish := range map[string]func(*net.TCPConn){
		"in order": func(c *net.TCPConn) { c.Close() },
		"by reset": func(c *net.TCPConn) { require.NoError(t, c.SetLinger(0)); c.Close() },
		"half way": func(c *net.TCPConn) { require.NoError(t, c.CloseWrite()) },
	} {
		for _, after := range []bool{false, true} {
			c := l.asked(t)
			ev := l.accepts(func() {
				if !after {
					vanish(c)
					return
				}
				go func() {
					_, _ = c.Read(make([]byte, 4)) // of the Reply
					vanish(c)
				}()
			})
			require.EqualValues(t, cmConnectError, ev.Type, name)
			require.Equal(t, syscall.ECONNRESET, syscall.Errno(-ev.Status), name)
			c.Close()
		}
	}
}
