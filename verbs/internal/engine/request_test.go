package engine

import (
	"net"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// asks makes a connection to the port of a number that sends a Request with private data, or
// nothing at all.
func asks(t *testing.T, number uint32, private []byte) net.Conn {
	t.Helper()
	at := name{gid: udHere, number: number}
	nc := must(net.Dial("tcp", at.port().String()))(t)
	t.Cleanup(func() { _ = nc.Close() })
	if private != nil {
		p := mpa.Party{PeerToPeer: true, CRC: true, IRD: 4, ORD: 4, RTR: mpa.RTRWrite}
		f := p.Request(mpa.RFC6581, private)
		must(nc.Write(f.Append(nil)))(t)
	}
	return nc
}

// requireRefused waits for the answer, and ends the connection.
func requireRefused(t *testing.T, nc net.Conn, want answer) {
	t.Helper()
	require.Equal(t, want, replied(t, nc).answer)
}

// requireSent sends a message from one end to the other.
func requireSent(t *testing.T, from, to *udEnd) {
	t.Helper()
	to.recv(1, to.p.sge(0, 64))
	from.send(wq.WQE{ID: 2, Op: wq.OpSend, Flags: wq.FlagSignaled, Local: from.p.sge(64, 16)})
	require.EqualValues(t, rnic.Success, from.poll().Status)
	require.EqualValues(t, rnic.Success, to.poll().Status)
}

// A host fills a process's port with connections that say nothing, with Requests of all wrong
// kinds, and with the very Request that the peer has made, again and again. Each is answered, the
// peer is served, and nothing is left when they have gone.
func TestHostileRequests(t *testing.T) {
	const many = 40
	p := newUDProgram(t)
	b, other := p.newNumbered()
	a, q := p.newNumbered()
	if a.number < b.number { // a is asked
		a, b, q = b, a, other
	}
	before := runtime.NumGoroutine()
	to, from := name{udHere, a.number}, name{udHere, b.number}
	right := hello{flags: helloAcknowledged, to: to, from: from}
	var silent, waiting []net.Conn
	for range 3 * many {
		silent = append(silent, asks(t, a.number, nil))
	}
	for i := range uint32(waitingMax) { // before RTR, as if of peers that are early
		h := hello{flags: helloAcknowledged, to: to, from: name{udHere, 77 + i}}
		waiting = append(waiting, asks(t, a.number, h.put()))
	}
	until(func() bool {
		q.way.mu.Lock()
		defer q.way.mu.Unlock()
		return len(q.way.waiting) == waitingMax
	})
	for range many {
		h := right
		h.to.number ^= 0x800
		requireRefused(t, asks(t, a.number, h.put()), unknown)
		h = right
		h.from.gid[15]++
		requireRefused(t, asks(t, a.number, h.put()), elsewhere)
		requireRefused(t, asks(t, a.number, right.put()[1:]), notByNumber)
		requireRefused(t, asks(t, a.number, right.put()), comeAgain)
	}
	a.connect(b.number)
	for _, nc := range waiting {
		requireRefused(t, nc, notForYou)
	}
	b.connect(a.number)
	requireSent(t, a, b)
	requireSent(t, b, a)
	last := asks(t, a.number, right.put())
	for range many {
		again := asks(t, a.number, right.put())
		requireRefused(t, last, comeAgain) // one of a peer waits, the latest
		last = again
	}
	requireSent(t, a, b)
	requireSent(t, b, a)
	for _, nc := range silent {
		require.NoError(t, nc.Close())
	}
	p.do(ring.DestroyQP, a.handle)
	requireRefused(t, last, comeAgain)
	p.do(ring.DestroyQP, b.handle)
	until(func() bool { return runtime.NumGoroutine() <= before })
}
