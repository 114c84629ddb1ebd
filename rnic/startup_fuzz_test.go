package rnic

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/tcp"
)

// FuzzStartup gives an Adapter whatever octets, as a Request or as a Reply, cut, repeated and
// reordered in whatever way, while the application answers as it likes and talks on the stream
// that a rejection leaves. Whatever comes: a request is what the octets say, the stream has the
// octets after the frame, once and in order, either way; the connection ends when it is told to;
// no Buf is lost.
//
// The script's first octet is the set-up, each other one a step: startupPlay.step.
func FuzzStartup(f *testing.F) {
	f.Add(request(mpa.Frame{Rev: 1, CRC: true, PrivateData: []byte("hello")}),
		[]byte{answerAccept, 7 << 3})
	f.Fuzz(func(t *testing.T, octets, script []byte) {
		p := newStartupPlay(t, octets[:min(len(octets), 4096)], script[:min(len(script), 200)])
		for p.at < len(p.script) {
			p.step(p.script[p.at])
			p.at++
		}
		p.end()
	})
}

// The set-up: how the application answers, and flags.
const (
	answerAccept byte = iota
	answerReject
	answerRejectStream
	answerNever
	answers

	setupDials  byte = 1 << 2 // the Adapter is the Initiator, and keeps what is rejected
	setupOthers byte = 1 << 3 // culley-02 is served; peer-to-peer is asked for
	setupSmall  byte = 1 << 4 // the peer's MSS
	setupResets byte = 1 << 5 // the peer ends with a RST
)

// startupPlay is one run of FuzzStartup.
type startupPlay struct {
	*segmentRig
	c      *forged
	setup  byte
	script []byte
	at     int
	req    *ConnRequest
	seen   bool // a request
	timed  bool // time passed, or the peer ended: what is not there may never come
	qps    []*QueuePair
	nc     net.Conn // given back
	base   int      // where its stream begins in what the peer says
	heard  int      // and in what the Adapter says
	read   []byte
	wrote  []byte
}

func newStartupPlay(t *testing.T, octets, script []byte) *startupPlay {
	p := &startupPlay{segmentRig: newSegmentRig(t, segmentRigConfig{bufs: 128, connsMax: 4})}
	p.adapter.host.Manual = func() { p.turn(time.Millisecond) } // so that no wait is without end
	if len(script) > 0 {
		p.setup, p.script = script[0], script[1:]
	}
	if p.has(setupDials) {
		p.c = p.dialForged(
			p.endOf(connOpts(ConnParam{KeepRejected: true, PeerToPeer: p.has(setupOthers)})))
	} else {
		if p.has(setupOthers) {
			p.listener.role.Dialects |= mpa.DialectsOf(mpa.Culley02)
		}
		mss := uint16(1460)
		if p.has(setupSmall) {
			mss = 64
		}
		p.c = p.open(3000, mss)
	}
	require.True(t, p.c.synced)
	p.c.stream = octets
	return p
}

func (p *startupPlay) has(flag byte) bool { return p.setup&flag != 0 }

func (p *startupPlay) endOf(opt opts) *end {
	s := p.newEnd(opt)
	p.qps = append(p.qps, s.qp)
	return s
}

// step does what one octet of the script says: the low three bits are the kind, the others how
// much.
func (p *startupPlay) step(b byte) {
	n := int(b >> 3)
	left := p.left()
	switch b & 7 {
	case 0:
		p.say(left, left+n+1)
	case 1:
		p.say(left, left+64*(n+1))
	case 2:
		p.say(left-n, left-n+20)
	case 3:
		p.say(left+n+1, left+n+21)
	case 4:
		p.answer()
	case 5:
		p.write(n + 1)
	case 6:
		p.readSome()
	case 7:
		p.timed = true
		if n == 31 && p.c.synced {
			p.send(p.c, p.c.seq(left), p.c.next, tcp.RST|tcp.ACK, 65535, p.c.options(), nil)
		}
		p.turns(2, time.Millisecond<<(n%14))
	}
	p.look()
}

// left is how many octets of the peer's have been acknowledged.
func (p *startupPlay) left() int { return min(max(0, p.c.place()), len(p.c.stream)) }

// say sends octets of the peer's, if it has them.
func (p *startupPlay) say(lo, hi int) {
	lo = max(0, lo)
	if hi = min(hi, lo+1400, len(p.c.stream)); lo < hi && !p.c.peerReset {
		p.c.sendOctets(lo, hi, 0)
	}
	p.turns(2, time.Microsecond)
}

// look takes what start-up has brought.
func (p *startupPlay) look() {
	if req := p.listener.Poll(); req != nil {
		require.False(p.t, p.seen, "a second request")
		p.req, p.seen = req, true
		p.judge(req)
	}
	for _, q := range p.qps {
		var re *RejectedError
		if p.nc == nil && isDone(q) && errors.As(q.Err(), &re) && re.Conn != nil {
			f, n, err := mpa.ParseFrame(p.c.stream, mpa.Reply, mpa.PrivateDataMax)
			require.NoError(p.t, err)
			require.True(p.t, f.Reject)
			p.returned(re.Conn, n)
		}
	}
}

// judge holds a request against the octets.
func (p *startupPlay) judge(req *ConnRequest) {
	if req.Dialect() == Culley02 {
		require.True(p.t, p.has(setupOthers) && p.c.stream[0] == 0)
		return
	}
	frame, n, err := mpa.ParseFrame(p.c.stream, mpa.Request, mpa.PrivateDataMax)
	require.NoError(p.t, err)
	require.Positive(p.t, n)
	_, private, err := frame.Enhanced()
	require.NoError(p.t, err)
	require.True(p.t, bytes.Equal(private, req.PrivateData()))
	p.base = n
}

// answer is the application's, whose request may have died meanwhile.
func (p *startupPlay) answer() {
	req := p.req
	if req == nil {
		return
	}
	p.req = nil
	switch p.setup % answers {
	case answerAccept:
		_ = req.Accept(p.t.Context(), p.endOf(opts{}).qp, ConnParam{})
	case answerReject:
		_ = req.Reject(p.t.Context(), []byte("no"))
	case answerRejectStream:
		if nc, err := req.RejectStream(p.t.Context(), []byte("not now")); err == nil {
			p.returned(nc, p.base)
		}
	case answerNever:
		p.req = req
	}
}

func (p *startupPlay) returned(nc net.Conn, base int) {
	require.NoError(p.t, nc.SetDeadline(time.Now().Add(patience)))
	p.nc, p.base = nc, base
	_, p.heard, _ = mpa.ParseFrame(p.c.in, p.kind(), mpa.PrivateDataMax)
	p.turn(time.Microsecond)
}

func (p *startupPlay) kind() mpa.FrameKind {
	if p.has(setupDials) {
		return mpa.Request
	}
	return mpa.Reply
}

func (p *startupPlay) write(n int) {
	if p.nc == nil {
		return
	}
	b := randomBytes(uint64(p.at), n)
	if k, err := p.nc.Write(b); err == nil {
		p.wrote = append(p.wrote, b[:k]...)
	}
	p.turns(2, time.Microsecond)
}

// readSome reads what is there for certain: octets that were acknowledged.
func (p *startupPlay) readSome() {
	if p.nc == nil || p.left() <= p.base+len(p.read) {
		return
	}
	var b [100]byte
	n, err := p.nc.Read(b[:])
	p.read = append(p.read, b[:n]...)
	if err != nil {
		require.True(p.t, p.timed, "%v", err)
	}
	p.turns(2, time.Microsecond)
}

// end says what is left to be said, ends the connection and counts.
func (p *startupPlay) end() {
	for left := -1; p.left() > left && !p.c.peerReset; {
		left = p.left()
		p.say(left, left+1400)
		p.turn(50 * time.Millisecond) // a delayed ACK
		p.look()
		p.answer()
	}
	p.missed()
	all := p.left() == len(p.c.stream) && !p.c.peerReset
	flags := tcp.FIN
	if p.has(setupResets) {
		flags, all = tcp.RST, false
	}
	p.send(p.c, p.c.seq(p.left()), p.c.next, flags|tcp.ACK, 65535, p.c.options(), nil)
	p.turns(3, time.Microsecond)
	p.look()
	if all = all && !p.timed; p.nc != nil && all {
		p.endStream(true)
	}
	for _, q := range p.qps {
		q.Abort()
	}
	p.turns(5, time.Microsecond)
	require.NoError(p.t, p.adapter.Close(p.t.Context()))
	for _, q := range p.qps {
		require.True(p.t, isDone(q), "%v", q.State())
		require.Zero(p.t, q.opt.SendCQ.promised())
	}
	require.Empty(p.t, p.adapter.host.Live())
	require.Zero(p.t, p.adapter.Regions(), "regions")
	p.poller.Stop()
	p.turns(5, time.Microsecond)
	if p.nc != nil && !all { // it is over now, if it was not
		p.endStream(false)
	}
	require.Equal(p.t, p.pool.Size(), p.pool.Available(), "Bufs")
}

// missed: a peer that sent a whole Request which is served has met with a request, or was told
// why not.
func (p *startupPlay) missed() {
	if p.seen || p.timed || p.has(setupDials) {
		return
	}
	frame, n, err := mpa.ParseFrame(p.c.stream, mpa.Request, mpa.PrivateDataMax)
	_, _, enhanced := frame.Enhanced()
	require.True(p.t, err != nil || n == 0 || frame.Rev > 2 || enhanced != nil, "no request")
}

// endStream reads a stream to its end; all: its peer ended it in order, and nothing is missing.
func (p *startupPlay) endStream(all bool) {
	b, err := io.ReadAll(p.nc)
	p.read = append(p.read, b...)
	said := p.c.stream[p.base:]
	require.True(p.t, bytes.HasPrefix(said, p.read), "%q of %q", p.read, said)
	if all {
		require.NoError(p.t, err)
		require.Len(p.t, p.read, len(said))
		require.Equal(p.t, string(p.wrote), string(p.c.in[p.heard:]))
		p.closeStream(p.nc)
		return
	}
	require.NotErrorIs(p.t, err, os.ErrDeadlineExceeded)
	_ = p.nc.Close() // the Poller has stopped
}
