package rnic

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// failing is a test of a script that fails: it remembers why.
type failing struct {
	testing.TB
	why strings.Builder
}

func (f *failing) Helper() {}
func (f *failing) FailNow() {
	runtime.Goexit()
}

func (f *failing) Errorf(format string, args ...any) { fmt.Fprintf(&f.why, format, args...) }

func (f *failing) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	f.FailNow()
}

func (f *failing) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

// fails runs step, which has to fail, and returns what it says. Few steps of time have to do.
func (d *driver) fails(t *testing.T, step func()) string {
	t.Helper()
	f := &failing{TB: t}
	before := *d
	d.t, d.left = f, 2000
	done := make(chan bool)
	go func() {
		met := false
		defer func() { done <- met }()
		step()
		met = true
	}()
	require.False(t, <-done, "the expectation was met")
	d.t, d.left = before.t, before.left
	return f.why.String()
}

// What an expectation that is not met says: what was wanted, and what came instead, decoded.
func TestScriptSaysWhatCame(t *testing.T) {
	const send = "Send on QN 0, MSN 1, MO 0: 5 octets, \"hello\""
	noMarkers := opts{ConnParam: ConnParam{NoMarkers: true}}
	type script struct {
		*rig
		s *end
		p *peer
	}
	hello := func(x script) {
		x.p.inject(writeFPDU(0, 0, ""))
		copy(x.s.source.Bytes(), "hello")
		x.s.post(WorkRequest{Op: OpSend, ID: 7, Local: x.s.source.Slice(0, 5), Signaled: true})
	}
	wrong := func(x script) { x.p.inject(writeFPDU(0xdead, 0, "x")) }
	const terminate = "Terminate on QN 2, MSN 1, MO 0: " +
		"DDP tagged buffer error: invalid STag (layer 1, type 1, code 0x00), segment of 15 octets, " +
		"RDMA Write to STag 0x0000dead, TO 0x0"
	for _, tc := range []struct {
		name   string
		before func(x script)
		step   func(x script)
		want   []string
	}{
		{"another FPDU", hello, func(x script) { x.p.expectFPDU(sendFPDU(2, "hello")) },
			[]string{"want\n\tSend on QN 0, MSN 2, MO 0: 5 octets, \"hello\"\nhave\n\t" + send}},
		{"another payload", hello, func(x script) { x.p.expectFPDU(sendFPDU(1, []byte{1, 2})) },
			[]string{"want\n\tSend on QN 0, MSN 1, MO 0: 2 octets, 0102\nhave\n\t" + send}},
		{"a Terminate came", wrong, func(x script) {
			x.p.expectFPDU(sendFPDU(1, "hello"))
		}, []string{"have\n\t" + terminate}},
		{"no FPDU came", nil, func(x script) { x.p.expectFPDU(sendFPDU(1, "hello")) },
			[]string{"want " + send + ": not within 2000 steps; no octets came"}},
		{"the end came", func(x script) { x.s.qp.Abort() }, func(x script) { x.p.nextFPDU() },
			[]string{"want an FPDU: " + stack.ErrReset.Error(), "no octets came",
				"then the end: " + stack.ErrReset.Error()}},
		{"no Terminate came", hello, func(x script) { x.p.expectTerminateFor(0x1100) },
			[]string{"want a Terminate for " + rdmap.Cause(0x1100).String() + ", have\n\t" + send}},
		{"another Terminate", wrong, func(x script) { x.p.expectTerminateFor(0x1101) },
			[]string{"want a Terminate for\n\t" + rdmap.Cause(0x1101).String() + "\nhave\n\t" +
				rdmap.Cause(0x1100).String()}},
		{"a Terminate about another segment", wrong, func(x script) {
			x.p.expectTerminate(rdmap.Terminate{Cause: 0x1100})
		},
			[]string{"want a Terminate,", "have\n\t" + rdmap.Cause(0x1100).String() +
				", segment of 15 octets"}},
		{"no FIN came", hello, func(x script) {
			x.p.expectFIN()
		}, []string{"want a FIN: not within 2000 steps; what came:\n\t" + send}},
		{"octets before the FIN", wrong, func(x script) {
			x.p.expectFIN()
		}, []string{"want no octets: what came:\n\t" + terminate, "then the end: EOF"}},
		{"a FIN for a RST", wrong, func(x script) {
			x.p.expectReset()
		}, []string{"want a RST, have EOF; what came:\n\t" + terminate}},
		{"octets", wrong, func(x script) {
			x.until("it", func() bool { return x.p.ended() != nil })
			x.p.expectNothing()
		},
			[]string{"want no octets: what came:\n\t" + terminate}},
		{"no start-up frame", hello, func(x script) {
			x.p.expectFrame(mpa.Reply)
		}, []string{"want a start-up frame", mpa.ErrKey.Error(), "what came:\n\t" + send}},
		{"another octet", hello, func(x script) {
			x.p.play("< 4d51")
		}, []string{"line 0", "4d51", "4d50"}},
		{"no completion", nil, func(x script) {
			x.s.expectCompletions(Completion{ID: 7, Op: OpSend, Len: 5})
		},
			[]string{"want completions:\n\t" + "Send 7 of queue pair", "not within 2000 steps",
				"is rts; no completions"}},
		{"another completion", hello, func(x script) {
			x.s.expectCompletions(Completion{ID: 8, Op: OpSend, Len: 5})
		},
			[]string{"completion 0: want\n\tSend 8 of queue pair", "completions:\n\tSend 7 of queue pair"}},
		{"fewer completions", hello, func(x script) {
			x.s.await(2)
		}, []string{"want 2 completions: not within 2000 steps", "completions:\n\tSend 7"}},
		{"a completion", hello, func(x script) {
			x.s.await(1)
			x.s.done = []Completion{{ID: 7}}
			x.s.expectNoCompletion()
		}, []string{"want no completion", " 7 of queue pair"}},
		{"it goes on", nil, func(x script) {
			x.s.expectClosed()
		}, []string{"want the end of queue pair", "not within 2000 steps", "is rts"}},
		{"another state", nil, func(x script) {
			x.s.expectState(Closing)
		}, []string{"want state closing: not within 2000 steps", "is rts"}},
		{"an end for a state", func(x script) {
			x.s.qp.Abort()
		}, func(x script) {
			x.s.expectState(Closing)
		}, []string{"want state closing; queue pair", ErrClosed.Error()}},
		{"no service", func(x script) {
			x.s.qp.Abort()
			x.s.awaitClosed()
		}, func(x script) {
			x.s.expectInService()
		}, []string{"want a queue pair in service; queue pair", ErrClosed.Error()}},
		{"an end in error", func(x script) {
			x.s.qp.Abort()
		}, func(x script) {
			x.s.expectClosed()
		}, []string{"want an end in order, have " + ErrClosed.Error()}},
		{"an end for another reason", func(x script) {
			x.s.qp.Abort()
		}, func(x script) {
			x.s.expectClosedBy(ErrLinger)
		}, []string{ErrLinger.Error(), ErrClosed.Error()}},
		{"a request refused", func(x script) {
			x.s.qp.Abort()
		}, func(x script) { x.s.post(WorkRequest{Op: 99}) }, []string{"rnic: "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, turned, rigConfig{})
			s := r.newEnd(r.server, noMarkers)
			p, _ := r.peerConnects(s, false)
			x := script{r, s, p}
			if tc.before != nil {
				tc.before(x)
			}
			why := r.fails(t, func() { tc.step(x) })
			for _, want := range tc.want {
				require.Contains(t, why, want)
			}
		})
	}
}

// Over sockets too the wait has an end.
func TestScriptEndsOverSockets(t *testing.T) {
	r := newRig(t, sockets, rigConfig{})
	s := r.newEnd(r.server, opts{})
	p, _ := r.peerConnects(s, false)
	before := r.ctx
	var stop func()
	r.ctx, stop = context.WithTimeout(before, 10*time.Millisecond)
	defer stop()
	require.Contains(t, r.fails(t, func() { p.nextFPDU() }), "want an FPDU: not within")
	require.Contains(t, r.fails(t, func() { s.await(1) }), "want 1 completions: not within")
	r.ctx = before
}

// A peer over segments of the test's own has the same words.
func TestScriptOverForgedSegments(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 512, connsMax: 8})
	s := h.newEnd(opts{ConnParam: ConnParam{NoMarkers: true}})
	c := h.startUp(4000, 1460, s)
	require.Contains(t, h.fails(t, func() {
		c.nextFPDU()
	}), "want an FPDU: not within 2000 steps; no octets came")
	c.inject(writeFPDU(0xdead, 0, "x"))
	require.Contains(t, h.fails(t, func() {
		c.expectFPDU(sendFPDU(1, "hello"))
	}), "RDMA Write to STag 0x0000dead, TO 0x0")
	c.expectFIN()
	c.sendOctets(len(c.stream), len(c.stream), tcp.FIN) // and acknowledges ours
	s.awaitClosed()

	again := h.newEnd(opts{})
	c = h.startUp(4001, 1460, again)
	c.reset()
	again.awaitClosed()
	require.ErrorIs(t, again.qp.Err(), stack.ErrReset)
}

// How FPDUs are shown.
func TestFPDUText(t *testing.T) {
	part := sendFPDU(3, strings.Repeat("x", 60))
	part.Last, part.MO, part.ULP32, part.Version, part.ULP = false, 9, 0xabcd, 2,
		rdmap.Control(0, rdmap.OpSendInv)
	read := rdmap.ReadRequest{SinkSTag: 1, SinkTO: 2, Size: 3, SrcSTag: 4, SrcTO: 5}
	answer := make([]byte, rdmap.AtomicResponseLen)
	(&rdmap.AtomicResponse{ID: 6, Original: 7}).Put(answer)
	for want, f := range map[string]fpdu{
		"RDMA Write to STag 0x00000100, TO 0x10: 2 octets, \"hi\"": writeFPDU(0x100, 16, "hi"),
		"RDMA Write to STag 0x00000100, TO 0x10: no octets":        writeFPDU(0x100, 16, ""),
		"Send with Invalidate on QN 0, MSN 3, MO 9, invalidating STag 0x0000abcd, not its last " +
			"segment, DDP version 2, RDMAP version 0: " +
			"60 octets, \"" + strings.Repeat("x", octetsShown) + "\" ...": part,
		"RDMA Read Request on QN 1, MSN 1, MO 0: 3 octets of STag 0x00000004, TO 0x5 into STag " +
			"0x00000001, TO 0x2": readFPDU(messageFPDU(rdmap.OpReadRequest, 1, "").Header, read),
		"Atomic Response on QN 3, MSN 2, MO 0: {ID:6 Original:7}": messageFPDU(
			rdmap.OpAtomicResponse, 2, answer),
		"Terminate on QN 2, MSN 1, MO 0: 1 octets, 11": terminateFPDU([]byte{0x11}),
	} {
		require.Equal(t, want, f.String())
		again, ok := parseFPDU(f.ulpdu())
		require.True(t, ok)
		require.True(t, again.equal(f), "%v", again)
	}
	require.Equal(t, "no whole FPDU: 3 octets, 000102", showStream([]byte{0, 1, 2}))
	p := &peer{}
	p.start(mpa.Mode{CRC: true})
	long := showStream(p.frame(slices.Repeat([]fpdu{sendFPDU(1, "x")}, fpdusShown+1)...))
	require.Equal(t, fpdusShown, strings.Count(long, "Send on QN 0"))
	require.Contains(t, long, "\n\tand 28 octets more")
	frame := request(mpa.Frame{Rev: 1})
	require.Contains(t, showStream(append(frame, 0xff)), "MPA Request: ")
}
