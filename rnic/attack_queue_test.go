package rnic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/tcp"
)

// Writes and Reads of nothing, which no STag bounds: legal, so the stream goes on. They take no
// memory however many there are, complete nothing, and no more Reads than IRD are answered for at
// a time.
//
// req: 5040-5.2.1-3, 5040-5.2.1-9, 5040-5.2.1-10
func TestAttackNothing(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	const rounds, writes, reads = 50, 100, 8
	a := r.assault(connOpts(ConnParam{IRD: reads}))
	msn := uint32(0)
	for range rounds {
		var burst []fpdu
		var outstanding []rdmap.ReadRequest
		for range writes {
			burst = append(burst, writeFPDU(0xdead, 1<<63, ""))
		}
		for range reads {
			msn++
			h, rr := readOf(msn, 0xdead, 1<<63, 0)
			burst, outstanding = append(burst, readFPDU(h, rr)), append(outstanding, rr)
		}
		a.p.inject(burst...)
		for _, rr := range outstanding {
			require.Empty(t, a.p.response(rr))
		}
	}
	st := r.stats(a.s.qp)
	require.EqualValues(t, rounds*writes, st.WritesRecvd)
	require.EqualValues(t, rounds*reads, st.ReadsServed)
	a.s.expectNoCompletion()
	require.Zero(t, st.Receive.HeldBufs)
	require.Equal(t, RTS, a.s.qp.State())
	a.bystander.goesOn()
	require.GreaterOrEqual(t, r.hosts[0].pool.Available(), r.hosts[0].pool.Size()/4*3)
}

// A peer that asks for as much as IRD allows and then takes nothing, with its window shut or by
// acknowledging nothing: what waits for it is Requests, and no more Bufs than a share. Another
// peer writes, reads and is answered all the while. Who never acknowledges ends by the user
// timeout, the other when the ULP says so, and all comes back.
func TestAttackUnreadResponses(t *testing.T) {
	for name, shut := range map[string]bool{"window shut": true, "never acknowledges": false} {
		t.Run(name, func(t *testing.T) {
			const bufs, ird, size = 512, 16, 1 << 20
			h := newSegmentRig(t, segmentRigConfig{bufs: bufs})
			u := h.besideUnread(ird)
			s := h.newEnd(connOpts(ConnParam{IRD: ird}))
			m := must(s.pd.Register(make([]byte, size), RemoteRead))
			c := h.startUp(3000, 1460, s)
			window := uint16(65535)
			say := func(octets []byte) {
				at := c.seq(len(c.stream) - len(octets))
				h.send(c, at, c.next, tcp.ACK, window, c.options(), octets)
			}
			stay := func(turns int) { // the one that never acknowledges says nothing more
				for range turns {
					if shut {
						say(nil)
					}
					h.turn(100 * time.Millisecond)
				}
			}
			if shut {
				window = 0
				say(nil)
			}
			lo := len(c.stream)
			for msn := range uint32(ird) {
				c.say(readFPDU(readOf(msn+1, m.STag(), 0, size)))
			}
			say(c.stream[lo:])
			least := h.pool.Available()
			for range 300 {
				stay(1)
				least = min(least, h.pool.Available())
				u.round()
			}
			require.Greater(t, least, bufs/4)
			st := s.qp.engine.Stats()
			require.EqualValues(t, ird, st.Receive.FPDUs, "Requests that were taken")
			require.LessOrEqual(t, st.ReadsServed, uint64(1))
			stay(1000)
			require.Equal(t, !shut, isDone(s.qp), "%v", s.qp.Err())
			s.qp.Abort()
			h.turns(3, time.Millisecond)
			require.True(t, isDone(s.qp))
			u.round()
			require.GreaterOrEqual(t, h.pool.Available(), bufs-4)
		})
	}
}

// reader is an innocent connection that writes, reads what it wrote, and acknowledges.
type reader struct {
	h      *segmentRig
	end    *end
	region *MemoryRegion
	c      *forged
	msn    uint32
}

func (h *segmentRig) besideUnread(ird int) *reader {
	h.t.Helper()
	u := &reader{h: h, end: h.newEnd(connOpts(ConnParam{IRD: ird, NoMarkers: true}))}
	u.region = must(u.end.pd.Register(make([]byte, 64), remoteBoth))
	u.c = h.startUp(9, 1460, u.end)
	return u
}

func (u *reader) round() {
	u.h.t.Helper()
	u.msn++
	text := []byte{byte(u.msn), byte(u.msn >> 8), 3}
	head, rr := readOf(u.msn, u.region.STag(), 0, len(text))
	u.c.inject(writeFPDU(u.region.STag(), 0, text), readFPDU(head, rr))
	u.c.expectFPDU(answerFPDU(rr, 0, string(text), true))
	u.c.expectNothing()
	u.c.sendOctets(len(u.c.stream), len(u.c.stream), 0) // acknowledges it
}
