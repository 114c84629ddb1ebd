package rnic

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/tcp"
)

// logged makes a turned rig whose client's segments towards the server are written down.
func logged(t *testing.T, cfg rigConfig) (*rig, *segmentLog) {
	t.Helper()
	r, logs := bothLogged(t, cfg)
	return r, logs[1]
}

// bothLogged has a log of each host, server and client; the server's is for injecting.
func bothLogged(t *testing.T, cfg rigConfig) (*rig, [2]*segmentLog) {
	t.Helper()
	logs := [2]*segmentLog{{}, {port: rigPort}}
	cfg.wrap = func(i int, q pmd.Queue, pool *mem.Pool) pmd.Queue {
		logs[i].Queue, logs[i].pool = q, pool
		return logs[i]
	}
	return newRig(t, turned, cfg), logs
}

// startupLen is the MPA Request without private data that goes before FPDUs.
const startupLen = 20

// Every segment begins with an FPDU and holds whole FPDUs, retransmissions with the boundaries of
// the first time.
//
// req: D01-3.1.1-1, D01-3.1.1-2, D01-5.3-2, D01-5.3-8, 5044-5.1-3, 5044-A.1-1
// req: C02-5.1.1-1, C02-5.1.1-2, C02-7.3-2, C02-7.3-8
// req: D01-2-3, D01-2-4, C02-4-3, 5044-2-1
func TestSegmentsHoldWholeFPDUs(t *testing.T) {
	for name, opt := range framings {
		t.Run(name, func(t *testing.T) {
			r, log := logged(t, rigConfig{})
			log.lose = func(s loggedSegment) bool { return s.sent%17 == 5 }
			s, c := r.connect(opt, opt)
			for i := range 60 {
				n := 1 + i*i*17%9000
				c.post(c.write(s, uint64(i), 10*i, n))
			}
			c.await(60)
			c.post(WorkRequest{Op: OpSend, ID: 99, Local: c.source.Slice(0, 10), Signaled: true})
			s.postRecv(s.recvAt(98, 0, 10))
			s.await(1)
			bounds := fpduBounds(t, log.stream(), startupLen, !opt.NoMarkers)
			again := map[int]int{}
			resent, packed := 0, 0
			for _, g := range log.segs {
				if g.off < startupLen {
					require.Equal(t, startupLen, g.off+len(g.data), "the Request travels alone")
					continue
				}
				require.True(t, bounds[g.off], "a segment at %d begins inside an FPDU", g.off)
				require.True(t, bounds[g.off+len(g.data)], "a segment at %d, %d octets, ends inside an FPDU",
					g.off, len(g.data))
				for at := g.off + 1; at < g.off+len(g.data); at++ {
					if bounds[at] {
						packed++
						break
					}
				}
				if n, ok := again[g.off]; ok {
					resent++
					require.Equal(t, n, len(g.data), "retransmission of %d", g.off)
				}
				again[g.off] = len(g.data)
			}
			require.Positive(t, resent)
			require.Positive(t, packed)
			r.close(s, c)
		})
	}
}

// All full segments of a long message are equally long, with markers too, so that a device can
// cut them from one: EMSS, and the markers are where they belong.
func TestFullSegmentsAreEquallyLong(t *testing.T) {
	for name, opt := range framings {
		t.Run(name, func(t *testing.T) {
			r, log := logged(t, rigConfig{})
			s, c := r.connectEnds(r.newEndOf(r.server, opt, 1<<18), r.newEndOf(r.client, opt, 1<<18))
			c.post(c.write(s, 1, 0, 200_000))
			s.postRecv(s.recvAt(2, 0, 10))
			c.post(WorkRequest{Op: OpSend, ID: 3, Local: c.source.Slice(0, 10), Signaled: true})
			s.await(1)
			require.True(t, bytes.Equal(c.source.Bytes()[:200_000], s.region.Bytes()[:200_000]))
			const emss = 1448
			short := 0
			for _, g := range log.segs {
				if g.off >= startupLen && len(g.data) != emss {
					short++
				}
			}
			require.LessOrEqual(t, short, 3, "segments of %d", len(log.segs))
			stream := log.stream()
			bounds := fpduBounds(t, stream, startupLen, !opt.NoMarkers)
			for off := 0; !opt.NoMarkers && startupLen+off < len(stream); off += mpa.MarkerSpacing {
				says, is := markedAt(stream, startupLen, off, bounds)
				require.Equal(t, is, says, "marker at %d", off)
			}
			r.close(s, c)
		})
	}
}

// What small messages wait for: nothing, or company while octets are unacknowledged.
//
// req: D01-5.3-3, D01-5.3.1-1, D01-5.3.1-2, D01-5.3.2-4, 5044-A.2-1, C02-7.3-3, C02-7.3.1-2
// req: C02-7.3.1-1, C02-7.3.2-3
func TestPacking(t *testing.T) {
	const messages = 200
	run := func(t *testing.T, p Packing) (segments int) {
		r, log := logged(t, rigConfig{})
		s, c := r.connect(opts{QPOptions: QPOptions{RecvDepth: messages}},
			opts{QPOptions: QPOptions{SendDepth: messages}, ConnParam: ConnParam{Packing: p}})
		for i := range messages {
			s.postRecv(s.recvAt(uint64(i), 100*i, 100))
		}
		for i := range messages {
			c.post(WorkRequest{Op: OpSend, ID: uint64(i), Local: c.source.Slice(i, 64), Signaled: true})
			r.step()
		}
		got := s.await(messages)
		for i, g := range got {
			require.Equal(t, uint64(i), g.ID)
			require.Equal(t, c.source.Bytes()[i:i+64], s.inbox.Bytes()[100*i:100*i+64])
		}
		bounds := fpduBounds(t, log.stream(), startupLen, true)
		for _, g := range log.segs {
			require.True(t, g.off < startupLen || bounds[g.off] && bounds[g.off+len(g.data)])
		}
		require.Zero(t, c.qp.engine.Staged())
		r.close(s, c)
		return len(log.segs)
	}
	now, full := run(t, PackNow), run(t, PackFull)
	require.Greater(t, now, messages/2, "segments when nothing waits")
	require.Less(t, full, messages/10, "segments when they are filled")
}

// A message is cut to fill what small ones left of a segment, but not into pieces under 128 octets.
//
// req: D01-5.3.2-9, D01-5.3.2-10
// req: C02-7.3.2-8, C02-7.3.2-9
func TestPackFullFillsSegments(t *testing.T) {
	r, log := logged(t, rigConfig{})
	opt := opts{ConnParam: ConnParam{Packing: PackFull, NoMarkers: true}}
	s, c := r.connect(opt, opt)
	for i := range 40 { // a small one and a long one, over and over
		c.post(c.write(s, uint64(2*i), 0, 100+i*25))
		c.post(c.write(s, uint64(2*i+1), 5000, 4000))
	}
	c.await(80)
	r.close(s, c)
	emss, short := 1448, 0
	stream := log.stream()
	for at := range fpduBounds(t, stream, startupLen, false) {
		if at < len(stream) && binary.BigEndian.Uint16(stream[at:]) < mpa.MULPDUMin {
			require.NotZero(t, stream[at+2]&0x40,
				"a piece under 128 octets is the tail of its message (DDP's L bit)")
		}
	}
	for _, g := range log.segs {
		if len(g.data) < emss-2*mpa.MULPDUMin {
			short++
		}
	}
	require.LessOrEqual(t, short, 4, "segments that were not filled, of %d", len(log.segs))
}

// The path's MTU shrinks while FPDUs are on their way. MULPDU follows EMSS for what is built from
// then on; what was built before is sent all the same, cut where it must be; the stream stays
// regular; and once the rest has drained every segment begins with an FPDU again.
//
// req: C02-5.1.1-3, C02-7.3-5, D01-3.1.1-3, D01-3.2-3, D01-5.3-4, D01-5.3-5, D01-5.3-7, D01-5.3.2-6
// req: 5044-5.1-4
// req: C02-5.2-3, C02-7.3-4, C02-7.3-7, C02-13.1.1.1-4, C02-13.1.1.2-4, D01-11.2.1-4, D01-11.2.2-4
func TestPathMTUShrinksUnderPostedFPDUs(t *testing.T) {
	for name, opt := range framings {
		t.Run(name, func(t *testing.T) {
			r, log := logged(t, rigConfig{mtu: 9000})
			s, c := r.connect(opt, opt)
			const n, mtu, emss = 60_000, 1500, 1500 - 40 - 12
			// the connection that is too small
			log.lose = func(g loggedSegment) bool { return len(g.data) > emss }
			c.post(c.write(s, 1, 0, n))
			r.until("something was sent", func() bool { return len(log.segs) >= 3 })
			log.tooBig(mtu)
			r.until("EMSS follows", func() bool {
				return c.qp.end.Connection.Load().Transport.EMSS() == emss
			})
			c.await(1)
			c.post(WorkRequest{Op: OpSend, ID: 99, Local: c.source.Slice(0, 10), Signaled: true})
			s.postRecv(s.recvAt(98, 0, 10))
			s.await(1)
			require.Equal(t, c.source.Bytes()[:n], s.region.Bytes()[:n])
			full, err := c.qp.PayloadMax(r.ctx)
			require.NoError(t, err)
			require.Less(t, full, emss)

			before := len(log.segs)
			c.post(c.write(s, 3, 0, n))
			c.post(WorkRequest{Op: OpSend, ID: 4, Local: c.source.Slice(0, 10), Signaled: true})
			s.postRecv(s.recvAt(98, 0, 10))
			s.await(1)
			stream := log.stream()
			bounds := fpduBounds(t, stream, startupLen, !opt.NoMarkers)
			unaligned := 0
			for i, g := range log.segs {
				aligned := g.off < startupLen || bounds[g.off] && bounds[g.off+len(g.data)]
				if i >= before {
					require.True(t, aligned, "segment at %d, long after the change", g.off)
					require.LessOrEqual(t, len(g.data), emss)
				} else if !aligned {
					unaligned++
				}
			}
			require.Positive(t, unaligned, "FPDUs built for 9000 had to be cut")
			require.Positive(t, r.stats(s.qp).Placed.Reassembled, "and were put together again")
			r.close(s, c)
		})
	}
}

// A receive window smaller than an FPDU: the FPDU goes out in pieces, and arrives.
//
// req: D01-5.3-5, D01-5.3-4
// req: C02-7.3-4
func TestWindowSmallerThanAnFPDU(t *testing.T) {
	r, log := logged(t, rigConfig{tcp: tcp.Config{ReceiveWindow: 1000}})
	s, c := r.connect(opts{}, opts{})
	const n = 20_000
	c.post(c.write(s, 1, 0, n))
	c.post(WorkRequest{Op: OpSend, ID: 99, Local: c.source.Slice(0, 10), Signaled: true})
	s.postRecv(s.recvAt(98, 0, 10))
	s.await(1)
	require.Equal(t, c.source.Bytes()[:n], s.region.Bytes()[:n])
	fpduBounds(t, log.stream(), startupLen, true)
	for _, g := range log.segs {
		require.LessOrEqual(t, len(g.data), 1000)
	}
	r.close(s, c)
}

// Before MPA is enabled a segment is a segment like any other TCP's, after it FPDUs decide: the
// change is at the octet after the start-up frame, in each half at its own.
//
// req: D01-3.1.1-4, D01-3.1.1-5, D01-3.1.2-12, C02-5.1.1-4
// req: D01-1.2-1
func TestRulesBeginAfterTheStartupFrame(t *testing.T) {
	r, log := logged(t, rigConfig{})
	s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
	private := randomBytes(9, 512)
	req := r.dial(c, private)
	require.Equal(t, private, req.PrivateData())
	require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
	r.until("in service", func() bool { return c.qp.State() != Connecting })
	c.post(c.write(s, 1, 0, 5000))
	c.await(1)
	r.close(s, c)
	bounds := fpduBounds(t, log.stream(), startupLen+len(private), true)
	for _, g := range log.segs[1:] {
		require.True(t, bounds[g.off] && bounds[g.off+len(g.data)], "segment at %d", g.off)
	}
}

// Segments beyond a gap reach MPA at once and are placed; what they say is not delivered before
// the gap is filled; nothing is handed up twice, and a later copy with other octets, however
// valid, changes nothing.
//
// req: C02-5.1.2-1, C02-5.1.2-2, C02-5.1.2-3, C02-5.1.2-4, C02-5.1.2-5, C02-5.1.2-6, C02-5.1.2-7
// req: C02-5.1.2-8, C02-5.1.2-12
// req: D01-3.1.2-1, D01-3.1.2-2, D01-3.1.2-3, D01-3.1.2-4, D01-3.1.2-5, D01-3.1.2-6, D01-3.1.2-7
// req: D01-3.1.2-8, 5044-A.3-1
// req: C02-5.1.2-10, D01-3.1.2-10
func TestSegmentsBeyondAGap(t *testing.T) {
	r, logs := bothLogged(t, rigConfig{})
	log := logs[1]
	// so that only TCP can keep other octets out
	s, c := r.connect(opts{ConnParam: ConnParam{NoCRC: true}}, opts{ConnParam: ConnParam{NoCRC: true}})
	const n = 10_000
	gap := 0
	log.lose = func(g loggedSegment) bool {
		if gap == 0 && g.off > 3000 {
			gap = g.off
		}
		return g.off == gap && gap != 0
	}
	s.postRecv(s.recvAt(9, 0, 100))
	c.post(c.write(s, 1, 0, n))
	c.post(WorkRequest{Op: OpSend, ID: 2, Local: c.source.Slice(0, 100), Signaled: true})
	stats := func() Stats {
		var v connect.View
		s.qp.end.Connection.Load().View(&v)
		return statsOf(v.Counters)
	}
	want, got := c.source.Bytes()[:n], s.region.Bytes()[:n]
	r.until("the rest is placed", func() bool { return bytes.Equal(want[n-1000:], got[n-1000:]) })
	r.pass(5 * time.Millisecond)
	require.NotEqual(t, want, got, "the gap is open")
	s.poll()
	// req: DDP-3.1-1, 5040-5.5-10
	require.Empty(t, s.done, "placed is not delivered")
	require.Positive(t, stats().TCP.OutOfOrder)

	last := log.segs[0]
	for _, g := range log.segs {
		if g.off > last.off {
			last = g
		}
	}
	require.Greater(t, last.off, gap)
	placed := stats().Placed
	logs[0].inject = append(logs[0].inject, last.forged(), last.frame)
	r.pass(time.Millisecond)
	// req: DDP-5-14, 5041-3-1
	require.Equal(t, placed, stats().Placed, "a duplicate was handed up")

	log.lose = nil
	s.await(1)
	require.Equal(t, want, got)
	r.close(s, c)
}
