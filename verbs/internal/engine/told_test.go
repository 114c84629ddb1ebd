package engine

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// A client that has its connection asks for the next one: the server's program hears of the
// connection before it hears of the request, however late the goroutine is that tells of it.
func TestConnectionIsToldBeforeTheNextRequest(t *testing.T) {
	p := newProgram(t)
	client := &peer{t, must(rnic.Open(rnic.Config{}))(t)}
	l := p.listen("127.0.0.1:0")
	one, connected := client.connect(l.addr)
	defer one.Abort()
	handle := l.request()
	p.do(ring.Adopt, handle, uint64(l.theirs), 2) // its events come by the listener's channel
	q := p.newQP()
	served := must(find[*qp](&p.engine.objects, q.handle))(t).rnic.Load()
	p.engine.endings.mu.Lock() // before the goroutine tells of it
	p.do(ring.CMAccept, handle, q.handle, 4, 4)
	require.NoError(t, <-connected)
	require.NoError(t, served.StartupOver(t.Context()))

	two, _ := client.connect(l.addr)
	defer two.Abort()
	d := must(find[*cmID](&p.engine.objects, l.id))(t).door
	came := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.ends)
	}
	until(func() bool { return came() == 2 })
	for range 1000 {
		runtime.Gosched()
		require.Empty(t, receive(l.events), "the request is told of first")
	}
	p.engine.endings.mu.Unlock()
	for _, want := range []uint32{cmEstablished, cmConnectRequest} {
		var b []byte
		until(func() bool { b = receive(l.events); return b != nil })
		require.EqualValues(t, want, (*ring.CMEvent)(unsafe.Pointer(&b[0])).Type)
	}
}

// A client that is silent after it was accepted delays no other client's request.
func TestSilentClientDelaysNoRequest(t *testing.T) {
	p := newProgram(t)
	l := p.listen("127.0.0.1:0")
	c := l.asked(t)
	defer c.Close()
	handle := l.request()
	_, accepted := p.channel()
	p.do(ring.Adopt, handle, uint64(accepted), 2)
	p.do(ring.CMAccept, handle, p.newQP().handle, 4, 4)
	must(c.Read(make([]byte, 4)))(t) // of the Reply, and says nothing

	client := &peer{t, must(rnic.Open(rnic.Config{}))(t)}
	two, _ := client.connect(l.addr)
	defer two.Abort()
	l.request()
}
