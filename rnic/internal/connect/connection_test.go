package connect

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/flight"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// responder makes a Responder's connection, which notes what it offers.
func responder(t *testing.T,
	d mpa.Dialects) (c *Connection, tr *abortable, e *Endpoint, offers *[]mpa.Frame) {
	c, e, tr = starting(t, Param{PeerToPeer: true, IRD: 1, ORD: 1})
	offers = new([]mpa.Frame)
	c.respondFor(
		&Responder{Dialects: d, PrivateMax: mpa.PrivateDataMax,
			Offer: func(_ *Connection, f mpa.Frame) error {
				f.PrivateData = append([]byte(nil), f.PrivateData...)
				*offers = append(*offers, f)
				return nil
			}})
	return c, tr, e, offers
}

// arriveOne is Arrive of one segment.
func arriveOne(c *Connection, off uint64, b mem.Buf, data []byte) stack.Verdict {
	_, v := c.Arrive(off, []mem.Buf{b}, [][]byte{data})
	return v
}

// pullOne is Pull of one segment, and returns how many octets it has.
func pullOne(c *Connection, dst []byte) int {
	room := [][]byte{dst[:len(dst):len(dst)]}
	if c.Pull(room).N == 0 {
		return 0
	}
	return len(room[0])
}

// A Request that comes in any pieces, some of them again, is offered once, whole; nothing after it
// is taken until the ULP has decided, and nothing ahead of a gap.
func TestRequestInPieces(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		private := make([]byte, r.IntN(60))
		for i := range private {
			private[i] = byte(r.Uint32())
		}
		want := mpa.Preferences{CRC: true, Rev: 1}.Frame(mpa.Request, private)
		stream := append(want.Append(nil), "early"...)
		frame := uint64(len(stream) - len("early"))
		c, tr, _, offers := responder(t, mpa.DialectsOf(mpa.RFC5044))
		c.Established()
		require.Nil(t, c.in, "octets for a silent peer")
		require.True(t, tr.silent)
		require.Equal(t, tr.now+int64(RequestTimeout), tr.timer)
		for at := uint64(0); at < frame; {
			from := at - min(at, r.Uint64N(8))
			to := min(uint64(len(stream)), at+1+r.Uint64N(40))
			require.Equal(t, stack.Refused,
				arriveOne(c, at+1, mem.NoBuf, stream[at+1:min(at+2, uint64(len(stream)))]), "ahead of a gap")
			v := arriveOne(c, from, mem.NoBuf, stream[from:to])
			require.Equal(t, to > frame, v == stack.Refused, "seed %d", seed)
			if at = to; v == stack.Refused {
				at = frame
			}
			require.Equal(t, at >= frame, len(*offers) == 1, "seed %d", seed)
			require.Equal(t, at, c.rxNext)
		}
		require.Equal(t, phaseDecide, c.phase)
		require.Nil(t, c.in, "octets that are kept for nothing")
		require.Equal(t, frame, c.rxBase)
		require.Equal(t, string(private), string((*offers)[0].PrivateData))
		require.Equal(t, mpa.Request, (*offers)[0].Kind)
		require.Equal(t, stack.Taken, arriveOne(c, frame-3, mem.NoBuf, stream[frame-3:frame]),
			"the end again")
		require.Equal(t, stack.Refused, arriveOne(c, frame-1, mem.NoBuf, stream[frame-1:frame+1]))
		require.Equal(t, []flight.Kind{flight.RequestIn}, tr.kinds)
		require.Equal(t, tr.now+int64(RequestTimeout), tr.timer, "the ULP has its time")
		require.Zero(t, tr.aborts)
	}
}

// A Request whose slot is another connection's by now, or whose ULP has no place for it, ends the
// connection.
func TestRequestTooLate(t *testing.T) {
	full := errors.New("no place")
	for _, lost := range []bool{true, false} {
		f := mpa.Preferences{CRC: true, Rev: 1}.Frame(mpa.Request, nil)
		c, tr, _, _ := responder(t, mpa.DialectsOf(mpa.RFC5044))
		tr.lost = lost
		offered := 0
		c.Responder.Offer = func(*Connection, mpa.Frame) error { offered++; return full }
		c.Established()
		arriveOne(c, 0, mem.NoBuf, f.Append(nil))
		require.Equal(t, 1, tr.aborts)
		if lost {
			require.ErrorIs(t, c.Err, stack.ErrGaveWay)
			require.Zero(t, offered)
		} else {
			require.ErrorIs(t, c.Err, full)
			require.EqualValues(t, 1, c.Host.Startup.Refused[RefusedBacklog].Load())
		}
	}
}

// What becomes of octets says the phase. In full operation the stream begins at rxBase: what is
// before that has come again, and what follows needs a Buf.
func TestArriveByPhase(t *testing.T) {
	for _, tc := range []struct {
		phase    phase
		off, len int
		want     stack.Verdict
	}{
		{phaseToStream, 0, 5, stack.Refused}, {phaseToStream, 20, 5, stack.Refused},
		{phaseRejecting, 20, 5, stack.Taken}, {phaseOver, 20, 5, stack.Taken},
		{phaseDecide, 15, 5, stack.Taken}, {phaseDecide, 15, 6, stack.Refused},
		{phaseDecide, 20, 1, stack.Refused},
		{phaseFull, 15, 5, stack.Taken}, {phaseFull, 10, 5, stack.Taken},
		{phaseFull, 15, 6, stack.Refused},
		{phaseFull, 20, 1, stack.Refused},
	} {
		c, tr := inService(t)
		c.phase, c.rxBase = tc.phase, 20
		require.Equal(t, tc.want, arriveOne(c, uint64(tc.off), mem.NoBuf, make([]byte, tc.len)), "%+v",
			tc)
		require.Zero(t, tr.aborts)
		require.False(t, c.engine.Cut())
	}
	c, _ := inService(t)
	c.rxBase = 20
	b := c.Pool.Alloc()
	data := c.Pool.Slot(b)[mem.Headroom:][:9]
	clear(data)
	data[5], data[6] = 1, 2 // the length of an FPDU, of which two octets more have come
	require.NotEqual(t, stack.Refused, arriveOne(c, 15, b, data))
	c.Edge(24)
	require.True(t, c.engine.Cut(), "a part of a frame has come")
}

// A transport in order has nothing to drop for a bad CRC: what it refused would never come again.
// The timestamp of a segment matters only where a segment is dropped.
func TestDropBadCRCNeedsOurTCP(t *testing.T) {
	for _, asked := range []bool{false, true} {
		for _, inOrder := range []bool{false, true} {
			_, e, tr := starting(t, Param{DropBadCRC: asked})
			tr.memory.InOrder = inOrder
			c := initiated(e, tr, mpa.Agreement{Receive: mpa.Mode{CRC: true}, Version: 1})
			require.Equal(t, asked && !inOrder, c.dropBadCRC)
			b := c.Pool.Alloc()
			arriveOne(c, 0, b, c.Pool.Slot(b)[mem.Headroom:][:2])
			require.Equal(t, c.dropBadCRC, tr.stamps == 1)
		}
	}
}

// In culley-02 the Initiator's start-up is over when the connection stands; the Responder's, when
// the ULP has accepted and the first FPDU has come. Both begin with a marker.
func TestImmediate(t *testing.T) {
	c, e, tr := starting(t, Param{IRD: 1, ORD: 1})
	c.initiate(e, []mpa.Dialect{mpa.Culley02})
	c.Established()
	require.Equal(t, phaseMarker, c.phase)
	require.True(t, e.started.Given())
	require.NotZero(t, tr.sends)
	require.EqualValues(t, 1, e.Terms.Load().IRD)

	c, tr, e, offers := responder(t, mpa.DialectsOf(mpa.Culley02))
	c.rxNext = 7
	c.Established()
	require.Equal(t, []mpa.Frame{{}}, *offers)
	require.Equal(t, uint64(7), c.rxBase)
	require.NoError(t, c.Accept(e, mpa.Frame{}))
	require.Equal(t, phaseMarker, c.phase)
	require.False(t, e.started.Given())
	require.Same(t, c, e.Connection.Load())
	require.NotZero(t, tr.sends)
	arriveOne(c, 7, c.Pool.Alloc(), []byte("GET / HTTP"))
	require.Equal(t, []wq.EventKind{wq.EventTerminated}, tr.told, "no marker, and it is told at once")
}

// A Responder whose transport refuses the time that its ULP wants is not in service: a Request is
// rejected, a connection without one is reset, and the refusal is counted. 0 asks for nothing.
func TestUserTimeoutOfAResponder(t *testing.T) {
	request := mpa.Preferences{CRC: true, Rev: 1}.Frame(mpa.Request, nil)
	failed := errors.New("no such option")
	for _, d := range []mpa.Dialect{mpa.RFC5044, mpa.Culley02} {
		for _, tc := range []struct {
			asked, want time.Duration
		}{{0, 0}, {1, time.Millisecond}, {time.Minute, time.Minute}} {
			for _, refuses := range []error{nil, failed} {
				c, tr, e, _ := responder(t, mpa.DialectsOf(d))
				e.param.UserTimeout, e.param.PeerToPeer, tr.refuses = tc.asked, false, refuses
				c.Established()
				var f mpa.Frame
				if d == mpa.RFC5044 {
					arriveOne(c, 0, mem.NoBuf, request.Append(nil))
					f = request
				}
				require.Equal(t, phaseDecide, c.phase)
				err := c.Accept(e, f)
				require.Equal(t, tc.want, tr.giveUp)
				if refuses == nil || tc.asked == 0 {
					require.NoError(t, err)
					require.True(t, c.phase.inService())
					require.Zero(t, c.Host.Startup.Refused[RefusedSystem].Load())
					continue
				}
				require.ErrorIs(t, err, failed)
				require.False(t, c.phase.inService())
				require.Nil(t, e.Connection.Load())
				require.EqualValues(t, 1, c.Host.Startup.Refused[RefusedSystem].Load())
				require.Equal(t, d == mpa.Culley02, tr.aborts == 1)
			}
		}
	}
}

// Which octets may begin a stream with a marker.
func TestBeginsWithMarker(t *testing.T) {
	for _, tc := range []struct {
		data string
		want bool
	}{
		{"", true}, {"abc", true}, {"ab\x00\x00", true}, {"ab\x00\x03", true}, {"ab\x00\x04", false},
		{"ab\x01\x00", false},
		{"\xff\xff\x00\x02rest", true}, {"MPA ID Req Frame", false},
	} {
		require.Equal(t, tc.want, beginsWithMarker([]byte(tc.data)), "%q", tc.data)
	}
}

// What the timer does says its purpose; how a connection ends whose peer lingers, the phase.
func TestTimerByPurpose(t *testing.T) {
	for _, tc := range []struct {
		name   string
		timer  purpose
		set    func(c *Connection, tr *abortable)
		err    error
		aborts int
		next   purpose
		at     time.Duration // from now
	}{
		{"a frame", timerFrame, nil, ErrStartupTimeout, 1, timerOff, 0},
		{"the decision", timerDecision, nil, ErrUndecided, 1, timerOff, 0},
		{"a stream", timerHandBack, nil, ErrLinger, 1, timerOff, 0},
		{"the end", timerLinger, nil, ErrLinger, 1, timerOff, 0},
		{"the end, and RTR", timerLinger, func(c *Connection, _ *abortable) {
			c.phase = phaseRtr
		}, ErrLinger, 1, timerOff, 0},
		{"the end, it moves", timerLinger, func(_ *Connection, tr *abortable) {
			tr.progress = 9
		}, nil, 0, timerLinger, CloseTimeout},
		{"a Terminate, it moves", timerLinger, func(c *Connection, tr *abortable) {
			tr.progress, c.Err = 9, errClosedEarly
		}, errClosedEarly, 1, timerOff, 0},
		{"a rejection", timerRejected, func(c *Connection, _ *abortable) {
			c.phase, c.half = phaseRejecting, halfOpen
		}, nil, 0, timerLinger, LingerTimeout},
		{"a rejection, closing", timerLinger, func(c *Connection, _ *abortable) {
			c.phase = phaseRejecting
		}, nil, 1, timerOff, 0},
		{"nothing", timerOff, nil, nil, 0, timerOff, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, tr := inService(t)
			tr.now, c.timer = 100, tc.timer
			if tc.timer == timerLinger {
				c.half = halfClosing
			}
			if tc.set != nil {
				tc.set(c, tr)
			}
			was := tr.timer
			c.Timer(0)
			require.Equal(t, tc.err, c.Err)
			require.Equal(t, tc.aborts, tr.aborts)
			require.Equal(t, tc.next, c.timer)
			if tc.next != timerOff {
				was = tr.now + int64(tc.at)
			}
			require.Equal(t, was, tr.timer)
			require.Equal(t, tc.timer == timerRejected, c.half == halfClosed)
		})
	}
}

// An Initiator's wake-up comes when its time is over; while start-up's message has not left, and
// once more after that, it is put off.
func TestWakeUpIsPutOff(t *testing.T) {
	c, tr := inService(t)
	require.NoError(t, c.engine.PostSend(&wq.WQE{Op: wq.OpSend}, nil, nil))
	require.NotZero(t, pullOne(c, make([]byte, 60)))
	c.endpoint.param.WakeUp = time.Second
	c.planWakeUp()
	require.Equal(t, timerWakeUp, c.timer)
	require.Equal(t, tr.now+int64(time.Second), tr.timer)
	c.timer = timerWakeUpLate // the message had not left
	tr.now += 7
	c.Timer(0)
	require.Equal(t, timerWakeUp, c.timer, "it may have left just now")
	require.Equal(t, tr.now+int64(time.Second), tr.timer)
	require.Zero(t, c.Host.Startup.WakeUps.Load())
	c.Timer(0)
	require.Equal(t, timerOff, c.timer)
	require.EqualValues(t, 1, c.Host.Startup.WakeUps.Load())
}

// The peer's FIN is an orderly end, except where it owes something.
func TestPeerClosedByPhase(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(c *Connection)
		want error // of the connection; nil: it closes
		ends int
	}{
		{"before the Request", func(c *Connection) { c.phase = phaseRequest }, ErrPeerClosed, 0},
		{"before the Reply", func(c *Connection) { c.phase = phaseReply }, ErrPeerClosed, 0},
		{"before the decision", func(c *Connection) { c.phase = phaseDecide }, ErrPeerClosed, 0},
		{"before the RTR message", func(c *Connection) { c.phase = phaseRtr }, ErrPeerClosed, 0},
		{"likewise, while we close", func(c *Connection) {
			c.phase, c.half = phaseRtr, halfClosing
		}, nil, 1},
		{"in a start-up frame", func(c *Connection) { c.in = []byte{1} }, ErrPeerClosed, 0},
		{"as it may", func(*Connection) {}, nil, 1},
		{"after a rejection", func(c *Connection) { c.phase = phaseRejecting }, nil, 1},
		{"as a stream", func(c *Connection) { c.phase = phaseToStream }, nil, 0},
		{"half-closed", func(c *Connection) { c.endpoint.param.AllowHalfClosed = true }, nil, 0},
		{"half-closed, while we close", func(c *Connection) {
			c.endpoint.param.AllowHalfClosed, c.half = true, halfClosing
		}, nil, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, tr := inService(t)
			c.engine.Move(wq.Connecting, wq.RTS)
			tc.set(c)
			c.PeerClosed()
			require.Equal(t, flight.PeerClosed, tr.kinds[0])
			require.Equal(t, tc.ends, tr.ends)
			if tc.want == nil {
				require.NoError(t, c.Err)
				require.Zero(t, tr.aborts)
				return
			}
			require.ErrorIs(t, c.Err, tc.want)
			require.Equal(t, 1, tr.aborts)
		})
	}
}

// Start-up octets go in segments of their own; the last one of a connection that becomes a stream
// gives it back, and the last one of one that closes ends our half, once.
func TestPullOfStartup(t *testing.T) {
	tr := &abortable{}
	c := &Connection{phase: phaseToStream, frames: frames{out: []byte("abcde")}}
	c.Transport = tr
	dst := make([]byte, 3)
	require.True(t, c.More())
	require.Equal(t, 3, pullOne(c, dst))
	require.Zero(t, tr.givesBack)
	require.Equal(t, 2, pullOne(c, dst))
	require.Equal(t, 1, tr.givesBack)
	require.False(t, c.More())
	require.Zero(t, pullOne(c, dst))
	require.Equal(t, 1, tr.givesBack)

	c.phase, c.out = phaseRejecting, []byte("abcd")
	c.closing()
	require.Zero(t, tr.ends)
	require.Equal(t, 3, pullOne(c, dst))
	require.Zero(t, tr.ends)
	require.Equal(t, 1, pullOne(c, dst))
	require.Equal(t, 1, tr.ends)
	pullOne(c, dst)
	require.Equal(t, 1, tr.ends)
	bufs, since := c.Held()
	require.True(t, bufs == 0 && since == 0)
}

// The last frame of start-up is a segment of its own, and what was posted is the next.
func TestLastFrameIsASegment(t *testing.T) {
	c, _ := inService(t)
	c.out = make([]byte, 20)
	require.NoError(t, c.engine.PostSend(&wq.WQE{Op: wq.OpSend}, nil, nil))
	dst := make([]byte, 1460)
	require.Equal(t, 20, pullOne(c, dst))
	require.Equal(t, 24, pullOne(c, dst))
}

// The Reply to a Request that is there before the last streaming message was sent goes after the
// message, and nothing keeps its private data.
func TestReplyAfterTheLastStreamingMessage(t *testing.T) {
	const last, grant = "Hello Ack", "grant"
	request := mpa.Preferences{CRC: true, Rev: 1}.Frame(mpa.Request, nil)
	c, _, e, _ := responder(t, mpa.DialectsOf(mpa.RFC5044))
	e.param = Param{PrivateData: []byte(grant)}
	c.Established()
	c.out = []byte(last)
	arriveOne(c, 0, mem.NoBuf, request.Append(nil))
	require.NoError(t, c.Accept(e, request))
	require.Equal(t, last, string(c.out[:len(last)]))
	reply, n, err := mpa.ParseFrame(c.out[len(last):], mpa.Reply, mpa.PrivateDataMax)
	require.NoError(t, err)
	require.Len(t, c.out, len(last)+n)
	require.False(t, reply.Reject)
	require.Equal(t, grant, string(reply.PrivateData))
	require.Nil(t, e.param.PrivateData)
}

// Octets of a stream that were handed over are waited for until the left edge has passed them.
func TestHandedOverOnce(t *testing.T) {
	f := mpa.Preferences{CRC: true, Rev: 1}.Frame(mpa.Request, nil)
	request := f.Append(nil)
	c, _, _, offers := responder(t, mpa.DialectsOf(mpa.RFC5044))
	end := 3 + uint64(len(request))
	c.TakeOver(stream.Handover{Read: 3, Edge: end})
	require.Equal(t, stack.Taken, arriveOne(c, 3, c.Pool.Alloc(), request))
	require.Len(t, *offers, 1)
	require.NotNil(t, c.early)
	c.Edge(end)
	require.Nil(t, c.early)
}

// Under PackFull the one segment that may be sent while nothing is unacknowledged is not followed
// by one that is not full: that waits for its acknowledgement, unless our half is to end.
func TestPackFullWaitsForTheFirst(t *testing.T) {
	for _, shut := range []bool{false, true} {
		c, tr := inService(t)
		c.packFull = true
		if shut {
			c.half = halfClosing
		}
		for range 3 { // FPDUs of 24 octets
			require.NoError(t, c.engine.PostSend(&wq.WQE{Op: wq.OpSend}, nil, nil))
		}
		pull := func() (lengths []int) {
			rooms := [][]byte{make([]byte, 60), make([]byte, 60)}
			for _, octets := range rooms[:c.Pull(rooms).N] {
				lengths = append(lengths, len(octets))
			}
			return lengths
		}
		if shut {
			require.Equal(t, []int{48, 24}, pull())
			continue
		}
		require.Equal(t, []int{48}, pull())
		tr.unacked = true
		require.Empty(t, pull())
		tr.unacked = false
		require.Equal(t, []int{24}, pull())
	}
}

// Over a kernel socket a message is cut where the segment that another has begun is full; our own
// TCP sends what there is.
//
// req: D01-5.3.2-4, C02-7.3.2-3
func TestSegmentsAreFilled(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		_, e, tr := starting(t, Param{})
		tr.memory.InOrder = inOrder
		mode := mpa.Mode{CRC: true}
		c := initiated(e, tr, mpa.Agreement{Send: mode, Receive: mode, Version: 1})
		for range 4 { // FPDUs of 224 octets
			require.NoError(t, c.engine.PostSend(&wq.WQE{Op: wq.OpSend, Flags: wq.FlagInline,
				Local: wq.SGE{Length: 200}}, nil, make([]byte, 200)))
		}
		rooms := [][]byte{make([]byte, 600), make([]byte, 600), make([]byte, 600)}
		var lengths []int
		for _, octets := range rooms[:c.Pull(rooms).N] {
			lengths = append(lengths, len(octets))
		}
		if inOrder {
			require.Equal(t, []int{600, 4*224 + 24 - 600}, lengths)
		} else {
			require.Equal(t, []int{448, 448}, lengths)
		}
	}
}

// A stream stays one while it has octets that nobody read, or if its host is closed; a role that
// fails leaves no connection with the host.
func TestMayTake(t *testing.T) {
	failed := errors.New("role")
	for _, tc := range []struct {
		over  stream.Handover
		quiet bool
		role  error
		want  error
	}{
		{stream.Handover{Read: 5, Edge: 5}, true, nil, nil},
		{stream.Handover{Read: 5, Edge: 6}, true, nil, ErrUnread},
		{stream.Handover{Read: 5, Edge: 5, Early: 1}, true, nil, ErrUnread},
		{stream.Handover{Read: 5, Edge: 6, Early: 1}, false, nil, nil},
		{stream.Handover{}, true, failed, failed},
	} {
		host := &Host{}
		c := NewConnection(host)
		err := c.mayTake(tc.over, tc.quiet, func(*Connection) error { return tc.role })
		require.Equal(t, tc.want, err)
		require.Equal(t, tc.want == nil, len(host.Live()) == 1)
		require.Equal(t, tc.role != nil, c.Gone.Given())
		host.Shut()
		require.Equal(t, ErrClosed, NewConnection(host).mayTake(stream.Handover{}, true, nil))
	}
}

// A host knows its connections until each has ended, in whatever order they do; one that it does
// not know changes nothing.
func TestHostKnowsItsConnections(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var host Host
	var model []*Connection
	for range 500 {
		if len(model) == 0 || r.IntN(2) == 0 {
			c := NewConnection(&host)
			require.True(t, host.addConnection(c))
			model = append(model, c)
		} else {
			i := r.IntN(len(model))
			host.dropConnection(model[i])
			host.dropConnection(model[i])
			host.dropConnection(NewConnection(&host))
			model = append(model[:i], model[i+1:]...)
		}
		require.ElementsMatch(t, model, host.Live(), "seed %d", seed)
	}
	host.Shut()
	require.True(t, host.IsClosed())
	require.False(t, host.addConnection(NewConnection(&host)))
}

// A dial that could not be begun ends the queue pair: with its reason, or as closed where the
// application has given it up.
func TestFailDial(t *testing.T) {
	reason := errors.New("no route")
	for _, unwanted := range []bool{false, true} {
		_, e, _ := starting(t, Param{})
		e.Unwanted.Store(unwanted)
		want := reason
		if unwanted {
			want = ErrClosed
		}
		e.failDial(reason)
		require.True(t, e.Done.Given())
		require.Equal(t, want, e.Err)
		require.Equal(t, want, e.result())
	}
}

// result waits for the result of start-up.
func (e *Endpoint) result() error {
	<-e.started.C()
	return e.outcome
}
