package tcp

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// repeater is a script that sends bursts as the stack does, by Repeat and RepeatRun where it may, if
// it is to.
type repeater struct {
	*script
	use, runs             bool
	repeats, refused, ran int
}

// burst pushes segments of the given sizes while there is room, and asks for one segment after
// each.
func (r *repeater) burst(sizes []int, psh uint) {
	r.t.Helper()
	var t Transmit
	again := false
	for i := 0; i < len(sizes); i++ {
		n := sizes[i]
		if again && r.runs {
			if k := r.run(sizes[i:], psh>>i, &t); k > 0 {
				i += k - 1
				continue
			}
		}
		if room := r.c.Room(r.now); room > 0 {
			n, end := min(n, room), psh>>i&1 != 0
			r.next++
			if again && r.c.Repeat(r.now, r.next, n, end, &t) {
				r.repeats++
				r.note(t)
				continue
			}
			if again {
				r.refused++
			}
			r.c.Push(r.now, r.next, n, end)
		}
		if !r.c.Next(r.now, &t) {
			return
		}
		again = r.use && t.Len > 0 && !t.Retransmit
		r.note(t)
	}
}

// run sends the first k of sizes, which are alike and end no unit, by RepeatRun.
func (r *repeater) run(sizes []int, psh uint, t *Transmit) (k int) {
	for k < len(sizes) && sizes[k] == sizes[0] && psh>>k&1 == 0 {
		k++
	}
	if k = r.c.RunRoom(r.now, sizes[0], k); k < 1 {
		return 0
	}
	handles := make([]Handle, k)
	for i := range handles {
		r.next++
		handles[i] = r.next
	}
	r.c.RepeatRun(r.now, handles, sizes[0], t)
	for _, h := range handles {
		t.Handle = h
		r.note(*t)
		t.Seq += Seq(t.Len)
	}
	r.ran += k
	return k
}

// note is what drain does with a segment.
func (r *repeater) note(t Transmit) {
	r.out = append(r.out, sentSegment{t, r.now})
	if t.Options.HasTimestamps {
		r.tsEcho = t.Options.TSval
	}
	r.sound()
}

// Repeat, and RepeatRun, send what Push and Next send, and leaves the Conn as they do, whatever came before:
// acknowledgments of all, some or none of what is in flight, losses and their repair, small and
// closed windows, the peer's octets in order and beyond a gap, timers, a smaller EMSS.
func TestRepeatIsPushAndNext(t *testing.T) {
	nagle, stamped := sackOnly(), sackOnly()
	nagle.NoDelay = false
	stamped.NoTimestamps, stamped.NoWindowScale = false, false
	repeats, refused, ran := 0, 0, 0
	for i, x := range []struct {
		cfg     Config
		options string
	}{{plain(), ""}, {sackOnly(), "sackOK"}, {nagle, "sackOK"}, {stamped, "sackOK ts 7,0 wscale 3"}} {
		x.cfg.SentMax = 64
		for seed := range uint64(60) {
			a := &repeater{script: accepted(t, x.cfg, x.options)}
			b := &repeater{script: accepted(t, x.cfg, x.options), use: true, runs: seed%2 == 0}
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			for step := range 60 {
				walk(rnd, a, b)
				require.Equal(t, wire(a.script), wire(b.script), "config %d, seed %d, step %d", i, seed, step)
				require.True(t, reflect.DeepEqual(a.c, b.c), "config %d, seed %d, step %d:\n%+v\n%+v", i, seed, step, a.c, b.c)
			}
			repeats, refused, ran = repeats+b.repeats, refused+b.refused, ran+b.ran
		}
	}
	require.Greater(t, repeats, 800)
	require.Greater(t, refused, 100)
	require.Greater(t, ran, 400)
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
func walk(rnd *rand.Rand, a, b *repeater) {
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
