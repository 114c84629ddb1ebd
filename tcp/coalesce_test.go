package tcp

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only what is new, in order and in the window, on a connection that wants it, may be given as one,
// and only where each segment would have had the same effect.
func TestCoalescible(t *testing.T) {
	segment := ". 1:1001 ack 1"
	ask := func(s *script, text string) int {
		seg := s.parse(text)
		return s.c.Coalescible(&seg)
	}
	s := accepted(t, plain(), "")
	require.Equal(t, 20000, ask(s, segment), "what the window has room for")
	require.Equal(t, 20000, ask(s, "P. 1:1001 ack 1"))
	for _, text := range []string{". 1 ack 1", ". 2:1002 ack 1", ". 0:1000 ack 1", "F. 1:1002 ack 1",
		"R. 1:1001 ack 1", "S. 1:1002 ack 1", "P 1:1001"} {
		require.Zero(t, ask(s, text), text)
	}
	s.in(". 2001:3001 ack 1")
	require.Zero(t, ask(s, segment), "a gap")
	s.in(". 1:2001 ack 1")
	require.Equal(t, 17000, ask(s, ". 3001:4001 ack 1"), "closed by what is not acknowledged yet")
	s.in("F. 4001:4002 ack 1")
	require.Zero(t, ask(s, ". 3001:4001 ack 1"), "the end is known")
	s.in(". 3001:4001 ack 1")
	require.Zero(t, ask(s, ". 4002:4003 ack 1"), "CLOSE-WAIT")
	require.Zero(t, ask(newScript(t, plain()), segment), "CLOSED")

	s = accepted(t, plain(), "")
	s.c.SetOrphaned(s.now)
	require.Zero(t, ask(s, segment), "an orphan")
}

// With ECN, marks are told apart segment by segment; unmarked ones may be coalesced.
func TestCoalescibleWithECN(t *testing.T) {
	s := accepted(t, plain(), "")
	s.c.ecn.on = true
	for _, x := range []struct {
		tos  uint8
		echo bool
		want int
	}{{0, false, 20000}, {2, false, 20000}, {ecnCE, false, 0}, {2, true, 0}} {
		seg := s.parse(". 1:1001 ack 1")
		seg.TOS, s.c.ecn.echo = x.tos, x.echo
		require.Equal(t, x.want, s.c.Coalescible(&seg), "%+v", x)
	}
}

// Segments given as one leave the Conn as they would have one by one: counts, window, what is owed
// and when; committed one by one, or several at a time.
func TestJoinedAsOneByOne(t *testing.T) {
	for _, x := range []struct {
		name         string
		first, parts int // octets
		last         int
	}{
		{"two full ones", 1000, 2, 1000}, {"a full and a short one", 1000, 2, 400},
		{"many", 1000, 7, 999}, {"many small ones", 10, 30, 10},
	} {
		for range 8 {
			joined(t, x.name, x.first, x.parts, x.last)
		}
	}
}

func joined(t *testing.T, name string, first, parts, last int) {
	single, coalesced := accepted(t, plain(), ""), accepted(t, plain(), "")
	total := (parts-1)*first + last
	for i := range parts {
		seg := single.parse(". 1 ack 1")
		seg.Seq += Seq(i * first)
		if seg.Len = first; i == parts-1 {
			seg.Len = last
		}
		a := single.c.Input(single.now, &seg)
		require.Equal(t, seg.Len, a.Len)
		single.c.Commit(single.now, &a, false)
	}
	seg := coalesced.parse(". 1 ack 1")
	seg.Len, seg.Part = first, 0
	require.GreaterOrEqual(t, coalesced.c.Coalescible(&seg), total, name)
	seg.Len, seg.Part = total, first
	a := coalesced.c.Input(coalesced.now, &seg)
	require.Equal(t, total, a.Len)
	at := uint64(0)
	var part Arrival
	for left := parts; left > 0; {
		k, n := 1+rand.IntN(left), first
		if left -= k; left == 0 {
			n = last
		}
		coalesced.c.Part(&part, &a, k, first, n)
		require.Equal(t, at, part.Offset)
		require.True(t, part.InOrder)
		coalesced.c.Commit(coalesced.now, &part, false)
		coalesced.sound()
		at += uint64((k-1)*first + n)
	}
	// an ACK that is owed now needs no timer, and a run may have owed it from the first on
	if single.c.ack.urgent {
		single.c.timers.delackAt, coalesced.c.timers.delackAt = never, never
	}
	require.Zero(t, a.Len)
	require.Equal(t, single.c.Edge(), coalesced.c.Edge(), name)
	require.Equal(t, single.c.Stats(), coalesced.c.Stats(), name)
	require.Equal(t, single.c.ack, coalesced.c.ack, name)
	require.Equal(t, single.c.rcvMSS, coalesced.c.rcvMSS, name)
	require.Equal(t, single.c.timers, coalesced.c.timers, name)
}
