package rnic

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// A peer that closes its half and leaves Reads unanswered has broken the connection.
func TestPeerLeavesReadsUnanswered(t *testing.T) {
	for _, early := range []bool{true, false} { // the Reads were posted before the FIN, or after it
		_, c, p := responded(t, noMarkers(connOpts(ConnParam{ORD: 1, AllowHalfClosed: true})))
		post := func() { c.post(c.readFrom(c.region, 1, 0, 8), c.readFrom(c.region, 2, 0, 8)) }
		if early {
			post()
			p.request()
		}
		p.closeSend()
		if !early {
			c.expectState(Closing)
			post()
		}
		require.Equal(t, []Status{Flushed, Flushed}, statuses(c.await(2)))
		c.qp.Disconnect()
		c.awaitClosed()
		if early {
			require.ErrorIs(t, c.qp.Err(), ErrUnanswered)
		} else {
			require.NoError(t, c.qp.Err())
		}
	}
}

// A Read that was posted and not sent when the peer closed its half ends our half too: what was
// posted before it is sent, the Read and everything after it is flushed and never sent, and the
// connection ends in order.
func TestUnanswerableReadEndsOurHalf(t *testing.T) {
	_, c, p := responded(t, noMarkers(connOpts(ConnParam{ORD: 1, AllowHalfClosed: true})))
	p.closeSend()
	c.expectState(Closing)
	silent := c.write(c, 4, 0, 8)
	silent.Signaled = false
	c.post(c.write(c, 1, 0, 8), c.readFrom(c.region, 2, 0, 8), c.write(c, 3, 0, 8), silent,
		c.readFrom(c.region, 5, 0, 8), WorkRequest{ID: 6, Op: OpLocalInvalidate, Signaled: true})
	require.Equal(t, c.region.STag(), p.nextFPDU().STag)
	p.expectFIN() // nothing but what was posted before the Read
	c.expectClosed()
	c.post(WorkRequest{Op: OpWrite, ID: 7})
	c.flushedFrom(2, 7)
}

// flushedFrom: e's completions are those of 1 to last, in order, from the given one on flushed.
func (e *end) flushedFrom(first, last int) {
	e.d.t.Helper()
	for i, cm := range e.await(last) {
		require.EqualValues(e.d.t, i+1, cm.ID)
		require.Equal(e.d.t, i+1 >= first, cm.Status == Flushed, "%+v", cm)
	}
	require.Zero(e.d.t, e.cq.promised())
}

// Our Responses go out all the same: the peer asked before it closed its half.
//
// req: 5040-4.4-2, 5040-5.2-1, 5040-5.2.1-1, 5040-5.2.1-2, 5040-5.2.2-1, 5040-5.2.2-4
func TestResponsesAfterAnUnanswerableRead(t *testing.T) {
	r, s, p := served(t, connOpts(ConnParam{IRD: 8, ORD: 1}))
	m := r.readable(s, regionBytes, RemoteRead)
	// they wait for the peer's first FPDU, as a Responder's work does
	s.post(s.readFrom(m, 1, 0, 8), s.write(s, 2, 0, 8))
	full := must(s.qp.PayloadMax(r.ctx)) // an answer that ends with its segment
	burst, outstanding := reads(m, 8, full, regionBytes, 100)
	p.inject(burst...)
	p.closeSend()
	for _, rr := range outstanding {
		require.Equal(t, m.Bytes()[:rr.Size], p.response(rr))
	}
	p.expectFIN()
	s.expectClosed()
	s.flushedFrom(1, 2)
}

// What waits for start-up's own Read, which no ULP knows of, waits no longer when the peer has
// closed its half without answering it.
func TestUnansweredRTR(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	c := r.newEnd(r.client,
		connOpts(ConnParam{Dialect: RFC6581, PeerToPeer: true, RTR: RTRRead, ORD: 1,
			NoMarkers: true}))
	p := r.peerAccepts(c)
	p.expectFrame(mpa.Request)
	p.write(unhex(t, hexRep+"5002 0004 8001 4000"))
	p.start(mpa.Mode{CRC: true})
	p.nextFPDU()
	c.expectInService()
	c.post(c.readFrom(c.region, 1, 0, 8), c.write(c, 2, 0, 8))
	r.pass(1e9)
	p.closeSend()
	c.expectClosed() // without waiting for an answer
	c.flushedFrom(1, 2)
}

// flushing is work of every kind under way, and posted, at c, whose peer is p.
type flushing struct {
	r *rig
	c *end
	p *peer

	outstanding rdmap.ReadRequest // the Read that is under way
	posted      []uint64          // send side, in order
	silent      map[uint64]bool   // of these, not signaled
	received    []uint64          // receive buffers, in order
}

// newFlushing has a Read under way, and after it work that is sent, work that waits for the Read,
// and work that waits for that.
func newFlushing(t *testing.T, r *rig, opt opts) *flushing {
	t.Helper()
	opt.ORD = 1
	c, p := r.responded(noMarkers(opt))
	f := &flushing{r: r, c: c, p: p, silent: map[uint64]bool{}}
	for id := uint64(100); id < 104; id++ {
		c.postRecv(c.recvAt(id, 4096, 64))
		f.received = append(f.received, id)
	}
	for i, op := range []Opcode{OpWrite, OpWrite, OpRead, OpSend, OpSend, OpRead, OpWrite, OpWrite} {
		f.post(op, i == 0 || i == 2 || i == 3 || i == 6)
	}
	f.p.nextFPDU()
	f.p.nextFPDU()
	f.outstanding = f.p.request()
	f.p.inject(sendFPDU(1, "into 100"))
	require.Equal(t, []uint64{100}, ids(t, f.only(OpRecv, 1)))
	return f
}

// post posts one request; a connection that is over may refuse it.
func (f *flushing) post(op Opcode, signaled bool) {
	wr := f.c.readFrom(f.c.region, uint64(len(f.posted)), 0, 8)
	wr.Signaled, wr.Op = signaled, op
	if op != OpRead {
		wr.Local = f.c.source.Slice(0, 8)
	}
	if op == OpSend {
		wr.RemoteSTag, wr.RemoteOffset = 0, 0
	}
	if n, err := f.c.qp.PostSend(wr); n == 1 {
		f.posted = append(f.posted, wr.ID)
		f.silent[wr.ID] = !signaled
	} else {
		require.ErrorIs(f.r.t, err, ErrClosed)
	}
}

// only waits for n completions of op, and keeps the others for later.
func (f *flushing) only(op Opcode, n int) (got []Completion) {
	f.r.until("completions", func() bool {
		f.c.poll()
		got = got[:0]
		for _, cm := range f.c.done {
			if cm.Op == op {
				got = append(got, cm)
			}
		}
		return len(got) >= n
	})
	return got
}

// judge holds all completions against what was posted: each once, in the order of posting, and
// after one that failed none that succeeds; one that is not signaled may be missing only before
// that.
func (f *flushing) judge(t *testing.T) {
	t.Helper()
	f.c.poll()
	var sends, receives []uint64
	failed := map[bool]bool{} // by side
	due := f.posted
	for _, cm := range f.c.done {
		isRecv := cm.Op == OpRecv
		require.Falsef(t, cm.Status == Success && failed[isRecv], "%+v succeeds after work that failed",
			cm)
		if isRecv {
			receives = append(receives, cm.ID)
		} else {
			sends = append(sends, cm.ID)
			for len(due) > 0 && due[0] != cm.ID {
				require.Truef(t, f.silent[due[0]] && !failed[false], "%d completed, %d was due: %v", cm.ID,
					due[0], f.c.done)
				due = due[1:]
			}
			require.NotEmptyf(t, due, "%+v", cm)
			due = due[1:]
		}
		failed[isRecv] = failed[isRecv] || cm.Status != Success
	}
	for _, id := range due {
		require.Truef(t, f.silent[id] && !failed[false], "%d never completed: %v", id, f.c.done)
	}
	require.True(t, slices.IsSorted(sends))
	require.Equal(t, f.received, receives)
	require.Zero(t, f.c.cq.promised())
}

// Steps that lead to the end of f's connection.
func terminates(f *flushing) { f.p.inject(terminateFPDU([]byte{0x11, 0x01, 0, 0})) }
func closes(f *flushing)     { f.c.qp.Disconnect() }
func aborts(f *flushing)     { f.c.qp.Abort() }
func fin(f *flushing)        { f.p.closeSend() }
func rst(f *flushing)        { f.p.reset() }
func responds(f *flushing)   { f.p.inject(answerFPDU(f.outstanding, 0, "12345678", true)) }

func badCRC(f *flushing) {
	b := f.p.frame(writeFPDU(0, 0, ""))
	b[len(b)-1] ^= 1
	f.p.write(b)
}

var waysToEnd = map[string][]func(f *flushing){
	"Terminate":                    {terminates, fin},
	"Terminate while closing":      {closes, terminates, fin},
	"Terminate after the Response": {responds, terminates, fin},
	"RST":                          {rst},
	"RST while closing":            {closes, rst},
	"FIN":                          {fin},
	"FIN while closing":            {closes, fin},
	"FIN after the Response":       {responds, fin},
	"FIN in the middle of a frame": {func(f *flushing) {
		f.p.write(f.p.frame(writeFPDU(0, 0, ""))[:9])
	}, fin},
	"bad CRC":                    {badCRC, fin},
	"bad CRC while closing":      {closes, badCRC, fin},
	"bad CRC after the Response": {responds, badCRC, fin},
	"Write to nowhere":           {func(f *flushing) { f.p.inject(writeFPDU(0x1234, 0, "x")) }, fin},
	"Response to nowhere":        {func(f *flushing) { f.outstanding.SinkSTag++ }, responds, fin},
	"Response that ends early": {func(f *flushing) {
		f.p.inject(answerFPDU(f.outstanding, 0, "1234", true))
	}, fin},
	"local error with a Read pending": {func(f *flushing) { f.c.source.Revoke() }, responds},
	"Abort":                           {aborts},
	"Abort while closing":             {closes, aborts},
	"Close that gives up":             {func(f *flushing) { _ = f.c.qp.Close(ended()) }},
	"silence":                         {closes},
	"silence after its Terminate":     {terminates},
}

// However a connection ends, what was posted completes once and in the order of posting, and
// nothing with success after what failed: with a Read under way, work after it that was sent, and
// work that waits for it; and with what is posted while it ends.
//
// req: 5040-5.5-9
// req: DDP-8.2.2-4, DDP-8.2.2-1, DDP-5-3
func TestEveryEndFlushesInOrder(t *testing.T) {
	for name, steps := range waysToEnd {
		t.Run(name, func(t *testing.T) {
			for _, opt := range []opts{{}, {ConnParam: ConnParam{AllowHalfClosed: true}},
				{ConnParam: ConnParam{Packing: PackFull}}} {
				r := newRig(t, turned, rigConfig{})
				f := newFlushing(t, r, opt)
				for _, step := range steps {
					step(f)
					f.post(OpWrite, true)
					r.step()
				}
				f.end()
				f.judge(t)
				r.noBufLost()
			}
		})
	}
}

// end posts while the connection ends and when it has, and closes it, if that is what it waits for.
func (f *flushing) end() {
	n := 0
	f.r.until("the end", func() bool {
		switch n++; {
		case n < 8: // the send queue has room for no more
			f.post([]Opcode{OpWrite, OpRead, OpSend}[n%3], n%2 == 0)
		case n == 8:
			f.c.qp.Disconnect()
		}
		return isDone(f.c.qp)
	})
	f.post(OpWrite, true)
}
