package rnic

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// A peer that closes its half and leaves Reads unanswered has broken the connection.
func TestPeerLeavesReadsUnanswered(t *testing.T) {
	for _, early := range []bool{true, false} { // the Reads were posted before the FIN, or after it
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			c := r.newEnd(r.client, noMarkers(opts{ConnParam: ConnParam{ORD: 1, AllowHalfClosed: true}}))
			p := r.peerResponds(c)
			if early {
				c.post(c.readFrom(c.region, 1, 0, 8))
				c.post(c.readFrom(c.region, 2, 0, 8))
				p.request()
			}
			p.closeSend()
			if !early {
				c.expectState(Closing)
				c.post(c.readFrom(c.region, 1, 0, 8))
				c.post(c.readFrom(c.region, 2, 0, 8))
			}
			cs := c.await(2)
			require.Equal(t, [2]Status{Flushed, Flushed}, [2]Status{cs[0].Status, cs[1].Status})
			c.qp.Disconnect()
			c.awaitClosed()
			if early {
				require.ErrorIs(t, c.qp.Err(), ErrUnanswered)
			} else {
				require.NoError(t, c.qp.Err())
			}
		})
	}
}

// A Read that was posted and not sent when the peer closed its half ends our half too: what was
// posted before it is sent, the Read and everything after it is flushed and never sent, and the
// connection ends in order.
func TestUnanswerableReadEndsOurHalf(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		c := r.newEnd(r.client, noMarkers(opts{ConnParam: ConnParam{ORD: 1, AllowHalfClosed: true}}))
		p := r.peerResponds(c)
		p.closeSend()
		c.expectState(Closing)
		before, read, after := c.write(c, 1, 0, 8), c.readFrom(c.region, 2, 0, 8), c.write(c, 3, 0, 8)
		before.Op, read.Op, after.Op = OpWrite, OpRead, OpWrite
		silent := after
		silent.ID, silent.Signaled = 4, false
		again := read
		again.ID = 5
		n, err := c.qp.PostSend(before, read, after, silent, again,
			WorkRequest{ID: 6, Op: OpLocalInvalidate, Signaled: true})
		require.NoError(t, err)
		require.Equal(t, 6, n)
		require.Equal(t, before.RemoteSTag, p.nextFPDU().STag)
		p.expectFIN() // nothing but what was posted before the Read
		c.expectClosed()
		c.post(WorkRequest{Op: OpWrite, ID: 7})
		for i, cm := range c.await(7) {
			require.EqualValues(t, i+1, cm.ID)
			require.Equal(t, i > 0, cm.Status == Flushed, "%+v", cm)
		}
		require.Zero(t, c.cq.q.Promised())
	})
}

// Our Responses go out all the same: the peer asked before it closed its half.
func TestResponsesAfterAnUnanswerableRead(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s := r.newEnd(r.server, opts{ConnParam: ConnParam{IRD: 8, ORD: 1}})
	m := r.readable(s, regionBytes, RemoteRead)
	p, _ := r.peerConnects(s, false)
	s.post(s.readFrom(m, 1, 0, 8)) // waits for the peer's first FPDU, as a Responder's work does
	s.post(s.write(s, 2, 0, 8))
	burst, outstanding := reads(m, 8, 100, regionBytes)
	p.inject(burst...)
	p.closeSend()
	for _, rr := range outstanding {
		require.Equal(t, m.Bytes()[:rr.Size], p.response(rr))
	}
	p.expectFIN()
	s.expectClosed()
	cs := s.await(2)
	require.Equal(t, [2]uint64{1, 2}, [2]uint64{cs[0].ID, cs[1].ID})
	require.Equal(t, [2]Status{Flushed, Flushed}, [2]Status{cs[0].Status, cs[1].Status})
}

// What waits for start-up's own Read, which no ULP knows of, waits no longer when the peer has
// closed its half without answering it.
func TestUnansweredRTR(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		c := r.newEnd(r.client,
			opts{ConnParam: ConnParam{Dialect: RFC6581, PeerToPeer: true, RTR: RTRRead, ORD: 1,
				NoMarkers: true}})
		p := r.peerAccepts(c)
		p.expectFrame(mpa.Request)
		p.write(unhex(t, hexRep+"5002 0004 8001 4000"))
		p.start(mpa.Mode{CRC: true})
		p.nextFPDU()
		c.expectInService()
		c.post(c.readFrom(c.region, 1, 0, 8))
		c.post(c.write(c, 2, 0, 8))
		if r.kind == turned {
			r.pass(1e9)
		}
		p.closeSend()
		c.expectClosed() // without waiting for an answer
		cs := c.await(2)
		require.Equal(t, [2]uint64{1, 2}, [2]uint64{cs[0].ID, cs[1].ID})
		require.Equal(t, [2]Status{Flushed, Flushed}, [2]Status{cs[0].Status, cs[1].Status})
	})
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
	c := r.newEnd(r.client, noMarkers(opt))
	f := &flushing{r: r, c: c, p: r.peerResponds(c), silent: map[uint64]bool{}}
	for id := uint64(100); id < 104; id++ {
		c.postRecv(c.recvAt(id, 4096, 64))
		f.received = append(f.received, id)
	}
	f.post(OpWrite, true)
	f.post(OpWrite, false)
	f.post(OpRead, true)
	f.post(OpSend, true)
	f.post(OpSend, false)
	f.post(OpRead, false)
	f.post(OpWrite, true)
	f.post(OpWrite, false)
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
	require.Zero(t, f.c.cq.q.Promised())
}

// waysToEnd are steps that lead to the end of f's connection, by name.
func waysToEnd() map[string][]func(f *flushing) {
	all := func(steps ...func(f *flushing)) []func(f *flushing) { return steps }
	terminate := func(f *flushing) {
		f.p.inject(terminateFPDU([]byte{0x11, 0x01, 0, 0}))
	}
	badCRC := func(f *flushing) {
		b := f.p.frame(writeFPDU(0, 0, ""))
		b[len(b)-1] ^= 1
		f.p.write(b)
	}
	closing := func(f *flushing) { f.c.qp.Disconnect() }
	response := func(f *flushing) { f.p.inject(answerFPDU(f.outstanding, 0, "12345678", true)) }
	fin := func(f *flushing) { f.p.closeSend() }
	return map[string][]func(f *flushing){
		"Terminate":                    all(terminate, fin),
		"Terminate while closing":      all(closing, terminate, fin),
		"Terminate after the Response": all(response, terminate, fin),
		"RST":                          all(func(f *flushing) { f.p.reset() }),
		"RST while closing":            all(closing, func(f *flushing) { f.p.reset() }),
		"FIN":                          all(fin),
		"FIN while closing":            all(closing, fin),
		"FIN after the Response":       all(response, fin),
		"FIN in the middle of a frame": all(func(f *flushing) {
			f.p.write(f.p.frame(writeFPDU(0, 0, ""))[:9])
		}, fin),
		"bad CRC":                    all(badCRC, fin),
		"bad CRC while closing":      all(closing, badCRC, fin),
		"bad CRC after the Response": all(response, badCRC, fin),
		"Write to nowhere": all(func(f *flushing) {
			f.p.inject(writeFPDU(0x1234, 0, "x"))
		}, fin),
		"Response to nowhere": all(func(f *flushing) {
			f.outstanding.SinkSTag++
		}, response, fin),
		"Response that ends early": all(func(f *flushing) {
			f.p.inject(answerFPDU(f.outstanding, 0, "1234", true))
		}, fin),
		"local error with a Read pending": all(func(f *flushing) { f.c.source.Revoke() }, response),
		"Abort":                           all(func(f *flushing) { f.c.qp.Abort() }),
		"Abort while closing":             all(closing, func(f *flushing) { f.c.qp.Abort() }),
		"Close that gives up":             all(func(f *flushing) { _ = f.c.qp.Close(ended()) }),
		silence:                           all(closing),
		silence + " after its Terminate":  all(terminate),
	}
}

const silence = "peer's silence" // for connect.LingerTimeout

// However a connection ends, what was posted completes once and in the order of posting, and
// nothing with success after what failed: with a Read under way, work after it that was sent, and
// work that waits for it; and with what is posted while it ends.
//
// req: 5040-5.5-9
func TestEveryEndFlushesInOrder(t *testing.T) {
	for name, steps := range waysToEnd() {
		t.Run(name, func(t *testing.T) {
			for _, opt := range []opts{{}, {ConnParam: ConnParam{AllowHalfClosed: true}},
				{ConnParam: ConnParam{Packing: PackFull}}} {
				kinds := both
				if strings.HasPrefix(name, silence) {
					kinds = []kind{turned} // where time is virtual
				}
				over(t, kinds, rigConfig{}, func(t *testing.T, r *rig) {
					f := newFlushing(t, r, opt)
					for _, step := range steps {
						step(f)
						f.post(OpWrite, true)
						if r.kind == turned {
							r.step()
						}
					}
					f.end()
					f.judge(t)
				})
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
