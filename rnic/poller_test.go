package rnic

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// After warm-up a Poller's turns allocate nothing, whatever they carry, and neither do posting
// and polling.
func TestNoAllocations(t *testing.T) {
	for name, opt := range framings {
		for _, size := range []int{64, 16 << 10} {
			t.Run(fmt.Sprintf("%s, %d octets", name, size), func(t *testing.T) {
				r := newRig(t, turned, rigConfig{})
				opt.SendDepth, opt.RecvDepth = 32, 32
				s, c := r.connect(opt, opt)
				r.exchange(s, c)
				var cs [32]Completion
				round := func() {
					want := 0
					for _, x := range [2][2]*end{{c, s}, {s, c}} {
						for i := range 4 {
							want += 3
							ok := errOf(x[1].qp.PostRecv(x[1].recvAt(1, 0, size))) == nil
							ok = ok && errOf(x[0].qp.PostSend(x[0].write(x[1], 2, i*size, size))) == nil
							ok = ok &&
								errOf(
									x[0].qp.PostSend(WorkRequest{Op: OpSend, ID: 3, Local: x[0].source.Slice(0, size),
										Signaled: true})) == nil
							if !ok {
								t.Fatal("post")
							}
						}
					}
					r.reap(want, cs[:], s, c)
				}
				requireNoAllocations(t, round)
				r.exchange(s, c)
			})
		}
	}
}

// A frame that is damaged so that only CRC32C sees it is dropped and comes again, when that was
// chosen.
//
// req: D01-1.2-7, D01-7-9, DDP-5-7, D01-5.2-18
func TestDropBadCRC(t *testing.T) {
	r := newRig(t, turned, rigConfig{faults: true})
	opt := opts{ConnParam: ConnParam{DropBadCRC: true}}
	s, c := r.connectEnds(r.newEndOf(r.server, opt, 1<<20), r.newEndOf(r.client, opt, 1<<20))
	r.exchange(s, c)
	require.NoError(t, r.hosts[0].faulty.Set(fault.Faults{Swap: 0.02}, fault.Faults{}))
	c.post(c.write(s, 1, 0, 1<<20))
	s.postRecv(s.recvAt(2, 0, 1))
	c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 1)})
	require.Equal(t, Success, s.await(1)[0].Status, "%v", s.qp.Err())
	require.True(t, bytes.Equal(c.source.Bytes(), s.region.Bytes()))
	st := r.stats(s.qp)
	require.Positive(t, st.Receive.RefusedCRC)
	all := r.server.CountersOf(r.hosts[0].poller) // of one connection: the same
	require.Equal(t, st.Receive.RefusedCRC, all.RefusedCRC)
	require.Equal(t, st.Receive.FPDUs, all.FPDUsIn)
	require.Equal(t, st.Placed, all.Placed)
	require.Equal(t, st.Receive.OutOfOrder, all.OutOfOrder)
	require.Equal(t, st.Receive.Reassembled, all.Reassembled)
	sent := r.client.CountersOf(r.hosts[1].poller)
	require.Equal(t, r.stats(c.qp).FPDUsSent, sent.FPDUsOut)
	require.Equal(t, r.stats(c.qp).PayloadSent, sent.PayloadOut)
	var k stack.Counters
	r.hosts[1].poller.Snapshot(&k)
	require.Equal(t, r.stats(c.qp).TCP.Retransmits, k.Memory.Totals.Retransmits)
	r.hosts[0].poller.Snapshot(&k)
	require.Equal(t, r.stats(s.qp).TCP.OutOfOrder, k.Memory.Totals.OutOfOrder)
	rx, _ := r.hosts[0].faulty.Faults()
	require.Positive(t, rx.Swapped)
}

// Otherwise it ends the stream, and both ends know why.
//
// req: 5040-6.2.1-1, D01-7-2
func TestBadCRCEndsStream(t *testing.T) {
	r := newRig(t, turned, rigConfig{faults: true})
	s, c := r.connect(opts{}, opts{})
	r.exchange(s, c)
	before := bytes.Clone(s.region.Bytes())
	require.NoError(t, r.hosts[0].faulty.Set(fault.Faults{Swap: 1}, fault.Faults{}))
	c.post(c.write(s, 1, 3000, 1400))
	s.expectState(Terminating)
	require.NoError(t, r.hosts[0].faulty.Set(fault.Faults{}, fault.Faults{}))
	c.awaitClosed()
	s.awaitClosed()
	var me *mpa.Error
	require.ErrorAs(t, s.qp.Err(), &me)
	require.Equal(t, mpa.ErrCRC, me.Code)
	var pe *PeerError
	require.ErrorAs(t, c.qp.Err(), &pe)
	require.Equal(t, rdmap.LLPCause(rdmap.LLPCRC), pe.said.Terminate.Cause)
	// after the end, too
	all, sent := r.server.CountersOf(r.hosts[0].poller), r.client.CountersOf(r.hosts[1].poller)
	require.EqualValues(t, 1, all.CRCErrors)
	require.EqualValues(t, 1, all.Terminated)
	require.EqualValues(t, 1, all.ServicesMade)
	require.EqualValues(t, 1, sent.TerminatesIn)
	require.True(t, bytes.Equal(before, s.region.Bytes()))
}

// Frames that come ahead of a gap are placed at once and delivered in order.
//
// req: DDP-7.3-4, D01-11.1.1-3, 5040-5.5-3
// req: DDP-5-6
func TestOutOfOrder(t *testing.T) {
	r := newRig(t, turned, rigConfig{faults: true})
	s, c := r.connectEnds(r.newEndOf(r.server, opts{}, 1<<20), r.newEndOf(r.client, opts{}, 1<<20))
	r.exchange(s, c)
	require.NoError(t, r.hosts[0].faulty.Set(fault.Faults{Reorder: 0.1}, fault.Faults{}))
	for i := range 64 {
		s.postRecv(s.recvAt(uint64(i), i, 1))
		c.post(c.write(s, 1, i<<14, 1<<14))
		c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(i, 1)})
	}
	for i := range 64 {
		s.expectCompletions(Completion{ID: uint64(i), Op: OpRecv, Len: 1})
		require.Truef(t, bytes.Equal(c.source.Bytes()[:(i+1)<<14], s.region.Bytes()[:(i+1)<<14]),
			"a Send was delivered before the Write in front of it")
	}
	require.Positive(t, r.stats(s.qp).Placed.OutOfOrder)
	require.Equal(t, c.source.Bytes()[:64], s.inbox.Bytes()[:64])
}

// Loss across start-up, and of anything later, is TCP's business.
//
// req: 5044-7.1.5-1, D01-6.1.4-3
func TestLossAcrossStartup(t *testing.T) {
	for seed := range 10 {
		r := newRig(t, turned, rigConfig{faults: true})
		for range seed { // another place in the sequence of faults
			r.pass(time.Millisecond)
		}
		for _, h := range r.hosts {
			require.NoError(t, h.faulty.Set(fault.Faults{Drop: 0.2}, fault.Faults{}))
		}
		s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
		require.NoError(t, c.qp.StartConnect(r.ctx, r.addr(), c.conn))
		var req *ConnRequest
		r.until("a request or the end", func() bool {
			req = r.listener.Poll()
			return req != nil || isDone(c.qp)
		})
		if req == nil {
			continue // the handshake gave up: that is TCP's to decide
		}
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		r.until("service", func() bool { return c.qp.State() != Connecting })
		require.Equal(t, RTS, c.qp.State(), "%v", c.qp.Err())
		r.exchange(s, c)
	}
}

// All Bufs come home when the connections are gone, however they ended.
func TestNoBufsLeak(t *testing.T) {
	for _, mtu := range []int{576, 1500, 9000} {
		r := newRig(t, turned, rigConfig{faults: true, mtu: mtu})
		for i := range 12 {
			s, c := r.connect(opts{}, opts{})
			r.exchange(s, c)
			if i%3 == 0 { // frames are held when the end comes
				require.NoError(t, r.hosts[0].faulty.Set(fault.Faults{Reorder: 0.3}, fault.Faults{}))
			}
			c.post(c.write(s, 1, 0, regionBytes))
			for range i {
				r.step()
			}
			switch i % 4 {
			case 0:
				c.qp.Abort()
			case 1:
				s.qp.Abort()
			case 2:
				c.post(WorkRequest{Op: OpWrite, Local: c.source.Slice(0, 1), RemoteSTag: 1})
			case 3:
				c.qp.Disconnect()
			}
			c.awaitClosed()
			s.awaitClosed()
			require.NoError(t, r.hosts[0].faulty.Set(fault.Faults{}, fault.Faults{}))
		}
		for i, h := range r.hosts {
			const spare = 1 // an idle Poller keeps one at hand
			r.until(fmt.Sprintf("all Bufs of host %d", i), func() bool {
				return h.pool.Available() >= h.pool.Size()-spare
			})
		}
	}
}

// A segment smaller than the smallest MULPDU's FPDU: frames go over two segments and still arrive.
//
// req: D01-5.3.2-8, 5044-4.5-2, 5044-5.1-5
func TestTinySegments(t *testing.T) {
	for _, mss := range []int{100, 127, 139, 140} {
		for name, opt := range framings {
			t.Run(fmt.Sprintf("MSS %d, %s", mss, name), func(t *testing.T) {
				r := newRig(t, turned, rigConfig{tcp: tcp.Config{MSS: mss}})
				s, c := r.connect(opt, opt)
				r.exchange(s, c)
				require.LessOrEqual(t, r.stats(c.qp).TCP.EMSS, mss)
				n, err := c.qp.PayloadMax(r.ctx)
				require.NoError(t, err)
				require.GreaterOrEqual(t, n, mpa.MULPDUMin-ddp.TaggedLen)
				for _, n := range []int{1, 50, 110, 114, 115, 4000} {
					r.sendAndWrite(s, c, n)
				}
				r.close(s, c)
			})
		}
	}
}

// More messages than may wait for Delivery, with gaps in front of them: what has no room is
// refused and comes again.
//
// req: DDP-7.3-6
func TestManyMessagesBeyondGaps(t *testing.T) {
	const messages = 30000
	r := newRig(t, turned, rigConfig{faults: true})
	s, c := r.connectEnds(r.newEnd(r.server, opts{}),
		r.newEnd(r.client, opts{QPOptions: QPOptions{SendDepth: 4096}}))
	r.exchange(s, c)
	before := r.stats(s.qp).WritesRecvd
	require.NoError(t, r.hosts[0].faulty.Set(fault.Faults{Drop: 0.02}, fault.Faults{}))
	posted := 0
	r.until("all messages delivered", func() bool {
		for posted < messages {
			wr := c.write(s, 0, posted, 1)
			wr.Signaled = false
			if errOf(c.qp.PostSend(as(OpWrite, wr))) != nil {
				break
			}
			posted++
		}
		require.NoError(t, c.qp.Err())
		return posted == messages && r.stats(s.qp).WritesRecvd-before == messages
	})
	require.Equal(t, c.source.Bytes()[3100:messages], s.region.Bytes()[3100:messages])
	require.Positive(t, r.stats(s.qp).Placed.OutOfOrder)
}
