package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// newGuarded is a program that has a secret, or none.
func newGuarded(t *testing.T, secret string) *udProgram {
	p := newUDProgram(t)
	if secret != "" {
		p.engine.secret = []byte(secret)
	}
	return p
}

// event is the next asynchronous event.
func (p *program) event() (ev ring.AsyncEvent) {
	p.t.Helper()
	must(unix.Read(p.events, octets(&ev)))(p.t)
	return ev
}

// ordered are two queue pairs of two programs, first the one that connects.
func ordered(p, q *udProgram) (first, second *udEnd, at *qp) {
	a, aq := p.newNumbered()
	b, bq := q.newNumbered()
	if a.number < b.number {
		return a, b, bq
	}
	return b, a, aq
}

// replied waits for a refusal, and returns what it says.
func replied(t *testing.T, nc net.Conn) (h hello) {
	t.Helper()
	b := make([]byte, mpa.FrameLen)
	must(io.ReadFull(nc, b))(t)
	b = append(b, make([]byte, binary.BigEndian.Uint16(b[mpa.FrameLen-2:]))...) // private data
	must(io.ReadFull(nc, b[mpa.FrameLen:]))(t)
	require.NoError(t, nc.Close())
	f, n, err := mpa.ParseFrame(b, mpa.Reply, 0)
	require.NoError(t, err)
	require.Len(t, b, n)
	require.True(t, f.Reject)
	return must(parseHello(f.PrivateData[mpa.EnhancedLen:]))(t)
}

// With the same secret two programs talk, once and again. With another one, or where one has none,
// the queue pair that connects ends with an event, and its first request as if nobody were there;
// the other one stays as it was.
func TestSecrets(t *testing.T) {
	for _, same := range []string{"", "the secret of both"} {
		p, q := newGuarded(t, same), newGuarded(t, same)
		for range 3 {
			a, b, _ := ordered(p, q)
			a.connect(b.number)
			b.connect(a.number)
			requireSent(t, a, b)
			requireSent(t, b, a)
			a.p.do(ring.ResetQP, a.handle)
			b.p.do(ring.ResetQP, b.handle)
			a.restarted()
			b.restarted()
			b.connect(a.number)
			a.connect(b.number)
			requireSent(t, b, a)
		}
	}
	for _, two := range [][2]string{{"one secret", "another secret"}, {"one secret", ""},
		{"", "another secret"}} {
		a, b, waits := ordered(newGuarded(t, two[0]), newGuarded(t, two[1]))
		b.connect(a.number)
		a.connect(b.number)
		a.recv(7, a.p.sge(0, 64))
		for id := range uint64(2) {
			a.send(wq.WQE{ID: id, Op: wq.OpSend, Flags: wq.FlagSignaled, Local: a.p.sge(0, 16)})
		}
		require.EqualValues(t, eventQPFatal, a.p.event().Type)
		require.EqualValues(t, rnic.RetryExceeded, a.poll().Status)
		for range 2 {
			require.EqualValues(t, rnic.Flushed, a.poll().Status)
		}
		require.NotZero(t, b.p.engine.refusals.of(otherSecret))
		require.True(t, waits.way.in(waySeeking))
	}
}

// Who does not have the secret hears that of every number, and nothing that was made of it.
func TestStrangersWithoutTheSecret(t *testing.T) {
	p := newGuarded(t, "the secret")
	a, b, _ := ordered(p, p)
	a.connect(b.number)
	b.connect(a.number)
	requireSent(t, a, b)
	seed := rand.Uint64()
	t.Log("seed", seed)
	draws := rand.New(rand.NewPCG(seed, 0))
	stranger := newGuarded(t, "a guess")
	right := hello{flags: helloAcknowledged, to: name{udHere, b.number}, from: name{udHere, a.number}}
	for range 100 {
		h := right
		if draws.IntN(2) == 0 {
			h.to.number ^= 1 << draws.IntN(numberBits)
		}
		switch draws.IntN(3) {
		case 0:
		case 1:
			h.proof = proof{nonce: draw(), challenge: draw()}
			stranger.engine.proven(ofRequest, &h)
		case 2: // a Reply's code, or one of other octets
			h.proof.nonce = draw()
			p.engine.proven([]string{ofReply, ofRequest}[draws.IntN(2)], &h)
			if b := h.put(); p.engine.believes(ofRequest, &h) {
				b[helloLen+draws.IntN(proofLen)] ^= 1 << draws.IntN(8)
				h = must(parseHello(b))(t)
			}
		}
		no := replied(t, asks(t, b.number, h.put()))
		require.Equal(t, otherSecret, no.answer)
		require.Equal(t, proof{}, no.proof)
	}
	requireSent(t, b, a)
}

// A Request is for one connection: heard on the wire and made again it is of no use, before its
// queue pair has an end, while it is in service, and in its next life.
func TestReplays(t *testing.T) {
	p := newGuarded(t, "the secret")
	a, b, q := ordered(p, p)
	h := hello{flags: helloAcknowledged, to: name{udHere, b.number}, from: name{udHere, a.number}}
	ask := func(challenge [16]byte) []byte {
		r := h
		r.proof = proof{nonce: draw(), challenge: challenge}
		return p.engine.proven(ofRequest, &r).put()
	}
	no := replied(t, asks(t, b.number, ask([16]byte{})))
	require.Equal(t, proveAgain, no.answer)
	require.True(t, p.engine.believes(ofReply, &no))
	challenge := no.proof.challenge
	require.Equal(t, challenge, replied(t, asks(t, b.number, ask(draw()))).proof.challenge)
	recorded := ask(challenge)
	waits := asks(t, b.number, recorded)
	until(func() bool {
		q.way.mu.Lock()
		defer q.way.mu.Unlock()
		return len(q.way.waiting) == 1
	})
	b.connect(a.number)
	require.NotEmpty(t, must(io.ReadAll(io.LimitReader(waits, mpa.FrameLen)))(t)) // it is accepted
	require.Equal(t, proveAgain, replied(t, asks(t, b.number, recorded)).answer)
	require.NoError(t, waits.Close())
	until(func() bool { return len(q.ends()) == 0 })
	a.connect(b.number)
	requireSent(t, a, b)
	for range 2 {
		no := replied(t, asks(t, b.number, recorded))
		require.Equal(t, proveAgain, no.answer)
		require.NotEqual(t, challenge, no.proof.challenge)
		p.do(ring.ResetQP, b.handle)
	}
}

// Only addresses that are allowed connect, are connected to, and send datagrams.
func TestAllow(t *testing.T) {
	p := newUDProgram(t)
	p.engine.allowed = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("fd00::/8")}
	for addr, want := range map[string]bool{"10.1.2.3": true, "::ffff:10.1.2.3": true, "fd00::1": true,
		"11.0.0.0": false, "127.0.0.1": false, "::1": false, "fe80::1%eth0": false} {
		require.Equal(t, want, p.engine.allows(netip.MustParseAddr(addr)), addr)
	}
	a, _ := p.newNumbered()
	stranger, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", portOf(a.number)))
	if err == nil { // else the reset was faster; it says nothing, and is not listened to
		_, err = stranger.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.EqualValues(t, 1, p.engine.refusals.of(notAllowed))
	require.EqualValues(t, 1, p.engine.adapter.StartupCounters().Refused.Rejected)
	there := netip.MustParseAddr("192.0.2.1").As16()
	_, err = p.call(ring.ConnectQP, append(udHere[:], there[:]...), a.handle, 99, 4)
	require.Equal(t, syscall.EACCES, err)

	e := p.newEnd(udRTS, 7)
	e.recv(0, p.sge(0, 4096))
	e.send(udSend{local: p.sge(0, 8)}.to(e.number, 7))
	require.EqualValues(t, rnic.Success, e.poll().Status) // it has left
	until(func() bool { return p.drops()[ring.DropStranger] == 1 })
}

// Strangers decide how many Requests are refused, not how many lines that makes.
func TestRefusalsAreToldNowAndThen(t *testing.T) {
	var r refusals
	now := time.Now()
	for i, x := range []struct {
		why   answer
		after time.Duration
		since uint64
		tell  bool
	}{
		{unknown, 0, 1, true}, {unknown, 0, 0, false}, {unknown, refusalsEvery - 1, 0, false},
		{elsewhere, 0, 1, true}, {unknown, 1, 3, true}, {unknown, 0, 0, false},
		{unknown, 3 * refusalsEvery, 2, true},
	} {
		now = now.Add(x.after)
		since, tell := r.add(x.why, now)
		require.Equal(t, x.tell, tell, i)
		require.Equal(t, x.since, since, i)
	}
	require.EqualValues(t, 6, r.of(unknown))
}

// What parseHello takes, put writes.
func FuzzHello(f *testing.F) {
	e := &Engine{secret: []byte("the secret")}
	h := hello{flags: helloAcknowledged, to: nameOf("10.0.0.1", 5), from: nameOf("fd00::1", 6)}
	f.Add(h.put())
	f.Add(e.proven(ofRequest, &h).put())
	f.Add(e.proven(ofReply, &hello{answer: proveAgain, to: h.from, from: h.to}).put())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil {
			return
		}
		if !bytes.Equal(b, h.put()) {
			t.Fatalf("%x became %x", b, h.put())
		}
		if e.believes(ofRequest, &h) && e.believes(ofReply, &h) {
			t.Fatal("both a Request and a Reply")
		}
		require.Less(t, h.answer, answersEnd)
	})
}
