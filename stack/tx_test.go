package stack

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// Every segment is well-formed, of both families, over a link that loses: addresses, DF, hop limit,
// sizes, MSS, and the checksum. That is ours, or, with offload, the pseudo-header's sum, which the
// device completes, and we believe it.
// req: 9293-MUST-2, 9293-MUST-45, 1191-2-1, 7323-5.7-1, 5044-A.5-1
// req: 8200-8.1-1, 8200-8.3-1, 9293-MUST-67, 9293-MUST-49, 1122-3.3.3-1
func TestEverySegmentIsWellFormed(t *testing.T) {
	for _, offload := range []bool{false, true} {
		for emss, open := range map[int]func(*lab) (u, v *peer){1448: (*lab).open, 1428: (*lab).open6} {
			labOffload = offload
			l := newLab(t, func(i int, cfg *Config) { sixes(i, cfg); cfg.TTL = 33 })
			labOffload = false
			syns, n := 0, 0
			for i, h := range l.hosts {
				h.nic.onSend = func(f []byte) {
					src, dst, b := segmentIn(t, f, 33)
					if b == nil {
						return
					}
					n++
					require.Equal(t, map[bool]netip.Addr{true: h.addr, false: addr6(i)}[src.Is4()], src.Netip())
					var s tcp.Segment
					require.Equal(t, tcp.DropNone, tcp.Parse(b, &s))
					if s.Flags&tcp.SYN != 0 {
						syns++
						require.EqualValues(t, emss+12, s.Options.MSS)
					}
					sum := inet.PseudoSum(src, dst, inet.ProtoTCP, len(b))
					if offload {
						require.Equal(t, inet.Fold(sum), binary.BigEndian.Uint16(b[checksumOffset:]))
						return
					}
					require.Zero(t, inet.Checksum(b, sum))
					if src.Is4() {
						require.Zero(t, inet.Checksum(b, naivePseudo(src, dst, len(b))), "an independent sum")
					}
				}
				h.nic.lose = func(f []byte) bool { return n%40 == 39 && len(f) > 80 }
			}
			u, v := open(l)
			require.Equal(t, emss, u.conn.EMSS())
			u.send(100_001) // an odd last segment
			v.send(100_001)
			l.until("there", func() bool { return u.edge == 100_001 && v.edge == 100_001 })
			require.NotZero(t, u.conn.Stats().Retransmits)
			w := l.dialAt(l.a, netip.AddrPortFrom(v.conn.Local().Addr(), 99))
			l.until("refused, by a RST made in a received Buf", func() bool { return w.closed == 1 })
			require.ErrorIs(t, w.err, ErrRefused)
			l.finish(u, v)
			require.NotZero(t, syns)
			require.Greater(t, n, 140)
			l.stop()
		}
	}
}

// segmentIn is what an IP packet of a TCP segment has, which is whole, at most 1500 octets and has
// this TTL; nil of any other frame.
func segmentIn(t *testing.T, f []byte, ttl uint8) (src, dst inet.Addr, segment []byte) {
	if isIPv6(f, inet.ProtoTCP) {
		_, ip, b := split6(t, f)
		require.Equal(t, ttl, ip.HopLimit)
		require.LessOrEqual(t, inet.IPv6Len+len(b), 1500)
		return ip.Src, ip.Dst, b
	}
	if !isTCP(f) {
		return src, dst, nil
	}
	ip, b, d := inet.ParseIPv4(f[inet.EthernetLen:], false)
	require.Equal(t, inet.DropNone, d, "the IP checksum is ours")
	require.True(t, ip.DF)
	require.Equal(t, ttl, ip.TTL)
	require.Equal(t, len(f), inet.EthernetLen+ip.TotalLen, "no octet after the packet")
	require.LessOrEqual(t, ip.TotalLen, 1500)
	return ip.Src, ip.Dst, b
}

// naivePseudo is RFC 9293 section 3.1, octet by octet.
func naivePseudo(src, dst inet.Addr, n int) uint64 {
	s, d := src.As4(), dst.As4()
	b := append(append(s[:], d[:]...), 0, inet.ProtoTCP, byte(n>>8), byte(n))
	sum := uint64(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint64(b[i])<<8 | uint64(b[i+1])
	}
	return sum
}

// A device that takes nothing for long: what still stands in the batch is not taken for lost, and
// no neighbour for silent, until a device that has done so for the user timeout is given up.
func TestQueuedFrameIsNotSentTwice(t *testing.T) {
	l, u, v := newLab(t, func(_ int, cfg *Config) { cfg.TCP.UserTimeoutNs = 10 * second }).opened()
	l.a.nic.txMax = 0
	u.send(1000)
	cwnd := u.conn.Stats().Cwnd
	asked := l.a.counters().ARPRequests
	l.pass(5 * second)
	n := l.a.counters()
	require.Equal(t, 1, n.Pending)
	require.Equal(t, asked, n.ARPRequests)
	require.NotZero(t, n.TimersPutOff)
	l.a.nic.txMax = -1
	l.until("there", func() bool { return v.edge == 1000 && u.acked == 1000 })
	require.Zero(t, u.conn.Stats().Retransmits+u.conn.Stats().Timeouts)
	require.GreaterOrEqual(t, u.conn.Stats().Cwnd, cwnd)

	l.a.nic.txMax = 0
	u.send(1000)
	l.until("given up", func() bool { return u.closed == 1 })
	require.ErrorIs(t, u.err, ErrTimeout)
}

// A device that reads a Buf long after Tx: what is sent again meanwhile is a copy.
func TestBufInDeviceIsCopied(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	l.a.nic.hold = true
	losing := true
	l.b.nic.lose = func(f []byte) bool { return losing } // ACKs are lost, so a sends again
	images := map[mem.Buf][]byte{}
	u.send(3000)
	l.turns()
	for _, b := range l.a.nic.held {
		images[b] = bytes.Clone(l.a.pool.Data(b))
	}
	l.pass(3 * second)
	for b, image := range images {
		require.Equal(t, image, l.a.pool.Data(b), "a Buf that the device reads was written to")
	}
	require.NotZero(t, l.a.counters().TxCopied)
	losing = false
	l.until("acknowledged", func() bool { return u.acked == 3000 && v.edge == 3000 })
}

// PSH stands on the last segment, and on the last of each unit, though more is queued after it.
//
// req: 9293-MUST-61
func TestPushStandsWhereAUnitEnds(t *testing.T) {
	for unit, want := range map[uint64][]bool{
		0: {6: true}, 2*1448 + 100: {2: true, 4: true, 6: true},
	} {
		l, u, v := newLab(t, nil).opened()
		u.unit = unit
		var flags []bool
		l.a.nic.onSend = func(f []byte) {
			if s, payload, ok := segmentOf(f); ok && len(payload) > 0 {
				flags = append(flags, s.Flags&tcp.PSH != 0)
			}
		}
		u.send(7 * 1448)
		l.until("there", func() bool { return v.edge == 7*1448 })
		require.Equal(t, want, flags)
	}
}

// Replies that find the batch full are dropped and counted; their Bufs come back.
func TestRepliesAreBounded(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) { cfg.PendingMax = 64 })
	l.b.nic.txMax = 0
	for range 100 {
		l.answers(l.a, l.b, pingFrame(t, l, "", 10))
	}
	n := l.b.counters()
	require.Equal(t, 64, n.Pending)
	require.Equal(t, uint64(64), n.EchoReplies)
	require.Equal(t, uint64(36), n.Own[DropTxFull])
	l.b.nic.txMax = -1
	l.turns()
	l.whole()
}

// What waits for the device is of no connection, perhaps, and has no timer.
func TestReplyThatWaitsForTheDevice(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	u.conn.Abort()
	l.turns()
	l.a.nic.txMax = 0
	v := l.dial(l.b, l.a, 7)
	l.turns()
	require.Zero(t, l.a.counters().Conns)
	require.Equal(t, l.now+retryNs, l.a.Deadline())
	l.a.nic.txMax = -1
	l.turns()
	require.ErrorIs(t, v.err, ErrRefused)
}

// Without a Buf nothing is lost for good: it is counted, and done when there are some again.
func TestEmptyPool(t *testing.T) {
	l := newLab(t, nil)
	l.listen(l.b, 7, 4)
	u := l.dial(l.a, l.b, 7, 1000)
	last := l.a.pool.Alloc()
	free := l.a.hoard(0)
	l.pass(20 * ms)
	require.NotZero(t, l.a.counters().NoBufWaits)
	require.Zero(t, l.a.counters().Segments)
	require.Equal(t, l.now+retryNs, l.a.Deadline())
	l.a.pool.Free(last) // one: the SYN takes it, the ARP request finds none
	l.pass(20 * ms)
	require.Equal(t, uint64(1), l.a.counters().Own[DropNoBuf])
	free()
	l.until("there", func() bool { return len(l.accepted) == 1 && l.accepted[0].edge == 1000 })
	require.Zero(t, u.closed)
}

// A segment that was pulled into the last Buf goes out when there is another: it needs no Buf
// itself, but its connection has to be served again.
func TestPullIntoTheLastBuf(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	free := func() {}
	u.onPull = func() { free = l.a.hoard(0) }
	u.send(1000)
	l.turns()
	require.Equal(t, uint64(1000), u.sent)
	require.Zero(t, v.edge)
	free()
	u.onPull = nil
	l.turns()
	require.Equal(t, uint64(1000), v.edge)
}

// The Bufs that are missing may be those that the connections to be aborted keep: they are given
// back although there is none for a RST.
func TestAbortWithAnEmptyPool(t *testing.T) {
	const conns = 3
	l := newLab(t, nil)
	l.listen(l.b, 7, conns, 1000)
	var us []*peer
	for range conns {
		u := l.dial(l.a, l.b, 7, 1000)
		u.verdict = func(uint64, int) Verdict { return Kept }
		u.onClosed = func() {
			l.a.pool.FreeN(u.kept)
			u.kept = nil
		}
		us = append(us, u)
	}
	l.until("each keeps a Buf", func() bool {
		return !slices.ContainsFunc(us, func(u *peer) bool { return len(u.kept) == 0 })
	})
	l.turns()
	free := l.a.hoard(0)
	for range 2 { // the second has no work left
		for _, u := range us {
			u.conn.Abort()
		}
	}
	l.turns()
	for i, u := range us {
		require.Equal(t, 1, u.closed, "connection %d", i)
		require.ErrorIs(t, u.err, ErrAborted)
	}
	require.NotZero(t, l.a.counters().Own[DropNoBuf], "the pool was not empty")
	require.Zero(t, l.a.counters().Conns)
	free()
	l.until("the others learn", func() bool { // from the RST that their next segment draws
		open := 0
		for _, v := range l.accepted {
			if v.closed == 0 {
				v.send(1)
				open++
			}
		}
		return open == 0
	})
}

// A frame that waited for its neighbour and finds the batch full is dropped, counted, and its Buf
// is free again.
func TestBatchIsFull(t *testing.T) {
	l := newLab(t, nil)
	p := l.a
	free := p.pool.Available()
	b := p.pool.Alloc()
	p.tx.meta[b] = bufMeta{conn: noConn, queued: true, freeAfter: true}
	p.tx.n = len(p.tx.frames)
	before := p.n.Own[DropTxFull]
	p.tx.batch(b, p.mac)
	p.dead.free()
	require.Equal(t, before+1, p.n.Own[DropTxFull])
	require.Equal(t, free, p.pool.Available())
	require.Equal(t, len(p.tx.frames), p.tx.n)
}
