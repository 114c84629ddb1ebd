package yard

import (
	"math"
	"sync/atomic"
	"time"
)

// How far the cores of a Crew are from each other is the host's to say. Those of a virtual machine
// may share a cache in one second and be on different dies in the next, where what passes between
// them takes five times as long, or be two threads of one core. No clock of the guest's shows it.
// So a line of cache is passed there and back before each slice, and the report says how long that
// took. No slice is left out for it.

// line is two words on lines of their own.
type line struct {
	_    [64]byte
	ping atomic.Uint32
	_    [124]byte
	pong atomic.Uint32
	_    [124]byte
}

const (
	passes      = 64 // of a line, there and back
	passesTried = 4  // times: what disturbs one does not count
)

// Apart is the time in ns that a line of cache takes from one core to the other and back.
func (c *Crew) Apart() float64 {
	var l line
	best := time.Duration(1<<63 - 1)
	c.left.jobs <- func() {
		for i := range uint32(passesTried) {
			from := time.Now()
			for k := i*passes + 1; k <= (i+1)*passes; k++ {
				l.ping.Store(k)
				for l.pong.Load() != k {
				}
			}
			best = min(best, time.Since(from))
		}
	}
	c.right.jobs <- func() {
		for k := uint32(1); k <= passesTried*passes; k++ {
			for l.ping.Load() != k {
			}
			l.pong.Store(k)
		}
	}
	<-c.left.lost
	<-c.right.lost
	return math.Round(float64(best.Nanoseconds()) / passes)
}

// AddRun takes the figure of a whole run into s, and what Apart has said before it.
func (s *Series) AddRun(rate, apart float64) {
	s.Rates, s.Apart = append(s.Rates, rate), append(s.Apart, apart)
}
