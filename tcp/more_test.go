package tcp

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
)

// burster is a script that sends bursts as the stack does: as many segments at once as atOnce says.
type burster struct {
	*script
	atOnce int
	more   int // segments that went along with another
}

// burst pushes segments of the given sizes while there is room, and sends what may go.
func (r *burster) burst(sizes []int, psh uint) {
	r.t.Helper()
	var t Transmit
	for i := 0; i < len(sizes); {
		segments, octets := r.c.Room(r.now, r.atOnce)
		pieces := make([]Piece, min(segments, len(sizes)-i))
		for k := range pieces {
			r.next++
			pieces[k] = Piece{Handle: r.next, Len: int32(min(sizes[i], octets)), Push: psh>>i&1 != 0}
			if i++; int(pieces[k].Len) < r.c.EMSS() && !r.c.noDelay { // Nagle: the last
				pieces = pieces[:k+1]
				break
			}
		}
		if len(pieces) > 0 {
			r.c.Push(r.now, pieces)
		}
		for len(pieces) > 0 || segments == 0 {
			if !r.c.Next(r.now, max(1, len(pieces)), &t) {
				return
			}
			pieces = r.account(t, pieces)
		}
	}
}

// account notes t and the segments that go with it, and returns the pieces that have not left.
func (r *burster) account(t Transmit, pieces []Piece) []Piece {
	r.note(t)
	if len(pieces) == 0 || t.Len == 0 || t.Retransmit || t.Handle != pieces[0].Handle {
		require.Zero(r.t, t.More)
		return pieces
	}
	for _, p := range pieces[1:][:t.More] {
		require.EqualValues(r.t, t.Len, p.Len)
		t.Seq += Seq(t.Len)
		t.Handle = p.Handle
		if t.Flags = t.Flags &^ PSH; p.Push {
			t.Flags |= PSH
		}
		r.note(t)
	}
	r.more += t.More
	if t.Off+t.Len < int(pieces[0].Len) {
		return pieces
	}
	return pieces[1+t.More:]
}

// note is what drain does with a segment.
func (r *burster) note(t Transmit) {
	t.More = 0
	r.out = append(r.out, sentSegment{t, r.now})
	if t.Options.HasTimestamps {
		r.tsEcho = t.Options.TSval
	}
	r.sound()
}

// Segments that are pushed and sent many at once are those that would go one by one, and leave the
// Conn as those do, whatever came before: acknowledgments of all, some or none of what is in
// flight, losses and their repair, small and closed windows, the peer's octets in order and beyond
// a gap, timers, a smaller EMSS.
func TestMoreIsOneByOne(t *testing.T) {
	nagle, stamped := sackOnly(), sackOnly()
	nagle.NoDelay = false
	stamped.NoTimestamps, stamped.NoWindowScale = false, false
	more, draw, n := 0, rand.Uint64(), sample.Count(15, 60)
	for i, x := range []struct {
		cfg     Config
		options string
	}{{plain(), ""}, {sackOnly(), "sackOK"}, {nagle, "sackOK"}, {stamped, "sackOK ts 7,0 wscale 3"}} {
		x.cfg.SentMax = 64
		for seed := draw; seed < draw+uint64(n); seed++ {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			a := &burster{script: accepted(t, x.cfg, x.options), atOnce: 1}
			b := &burster{script: accepted(t, x.cfg, x.options), atOnce: 2 + rnd.IntN(30)}
			for step := range 60 {
				walk(rnd, a, b)
				require.Equal(t, wire(a.script), wire(b.script), "config %d, seed %d, step %d", i, seed, step)
				require.True(t, reflect.DeepEqual(a.c, b.c), "config %d, seed %d, step %d:\n%+v\n%+v", i, seed,
					step, a.c, b.c)
			}
			more += b.more
		}
	}
	require.Greater(t, more, 13*n)
}

// A queued piece that EMSS has shrunk below goes in parts, each by itself: a caller knows the
// segments that go along by their handles.
func TestPartsGoAlone(t *testing.T) {
	cfg := plain()
	cfg.InitialWindow = 10
	s := accepted(t, cfg, "")
	s.push(400, 400) // not larger than EMSS will be
	segments, _ := s.c.Room(s.now, 8)
	require.Greater(t, segments, 1)
	s.c.Push(s.now, []Piece{{Handle: 50, Len: 1000}, {Handle: 51, Len: 500}})
	s.c.SetEMSSLimit(500)
	for _, want := range []struct {
		h   Handle
		off int
	}{{50, 0}, {50, 500}, {51, 0}} {
		var x Transmit
		require.True(t, s.c.Next(s.now, 3, &x))
		require.Equal(t, want.h, x.Handle)
		require.Equal(t, want.off, x.Off)
		require.Equal(t, 500, x.Len)
		if x.Off == 0 && x.Handle == 50 {
			require.Zero(t, x.More, "its other part")
		}
		if x.More > 0 { // of whole pieces only
			require.Equal(t, Handle(50), x.Handle)
			require.Equal(t, 1, x.More)
			break
		}
	}
}

// wire is what s has sent, without the SACK blocks of earlier segments that stand in a Transmit.
func wire(s *script) []sentSegment {
	out := s.sent()
	for i := range out {
		clear(out[i].Options.SACK[out[i].Options.SACKCount:])
	}
	return out
}

// walk makes one random step with both.
func walk(rnd *rand.Rand, a, b *burster) {
	both := func(do func(s *script)) { do(a.script); do(b.script) }
	switch c := a.c; rnd.IntN(10) {
	case 0, 1, 2: // the peer acknowledges, or does not
		acked := rnd.IntN(1+c.flight()) * rnd.IntN(2) // half of the time nothing new
		text := fmt.Sprintf(". %d ack %d", c.edge+1, 1+c.sndUna+uint64(acked))
		if left := c.flight() - acked; c.useSACK && left > 1000 && rnd.IntN(2) == 0 {
			text += fmt.Sprintf(" sack %d:%d", 1+c.sndNxt-1000, 1+c.sndNxt)
		}
		if rnd.IntN(4) == 0 {
			text += fmt.Sprintf(" win %d", rnd.IntN(3)*rnd.IntN(5000))
		}
		both(func(s *script) { s.in(text) })
	case 3: // and sends
		at := c.edge + 1 + uint64(rnd.IntN(2)*100)
		text := fmt.Sprintf(". %d:%d ack %d", at, at+100, 1+c.sndUna)
		both(func(s *script) { s.in(text) })
	case 4:
		d := rnd.Int64N(300 * ms)
		both(func(s *script) { s.advance(d) })
	case 5:
		limit := 500 + rnd.IntN(2)*500
		both(func(s *script) { s.c.SetEMSSLimit(limit) })
	default:
		sizes := make([]int, 1+rnd.IntN(20))
		for i := range sizes {
			if sizes[i] = 1000; rnd.IntN(8) == 0 {
				sizes[i] = 1 + rnd.IntN(1000)
			}
		}
		psh := uint(rnd.Uint32()) * uint(rnd.IntN(2))
		a.burst(sizes, psh)
		b.burst(sizes, psh)
	}
	both((*script).drainHandles)
}
