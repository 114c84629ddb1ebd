package stack

import (
	"github.com/rnicd/rnicd/tcp"
)

// What we send is kept until the peer acknowledges it, so a peer that takes its time, or shuts its window for ever (RFC 6429
// calls it a persist stall, attackers sockstress), keeps memory of ours. TCP itself never ends that: RFC 9293 section 3.8.6.1
// has a connection stay open as long as its peer answers probes. RFC 6429 section 3 leaves it to the system to end such
// connections when it needs what they hold, and that is what happens here, in steps:
//
//   - Who gives a Buf back may take one: a connection that flows cannot be driven out of the memory it works with.
//   - An eighth of the pool is for connections whose peer has ever acknowledged anything. The cheapest attack, a handshake
//     and then nothing, does not get there.
//   - Nobody gets all: a connection may pull only while it holds no more than Config.BufShare of what is still free (the
//     dynamic threshold of A. K. Choudhury, E. L. Hahne, "Dynamic queue length thresholds for shared-memory packet
//     switches", 1998). One alone has two thirds, and however many want more, something is left for the next. Nobody takes
//     a second while others wait for their first.
//   - While somebody else does not get the Bufs or records he could use, connections whose peer has taken longer than
//     Config.StallNs over what was in flight are reset with ErrHoarding: those that hold most first, four a millisecond.
//
// "Taken" is all that was in flight when the clock was started: a peer that acknowledges an octet now and then does not
// turn it back.

const (
	bufShareMax   = 100_000
	stallLookNs   = 250_000 // between two looks
	stallLooksMax = 64      // connections looked at each time
)

// reclaim ends the worst of some connections, if memory was wanted since it last looked and one of them is bad enough.
func (p *Poller) reclaim() {
	s := &p.pressure
	if short := p.memory.RecordsShort(); short != s.short {
		s.short = short
		s.want(noConn)
	}
	if !s.wanted || s.lookAt > p.now {
		return
	}
	s.wanted, s.lookAt = false, p.now+stallLookNs
	conns := p.slab.conns
	var worst *Conn
	most := 0
	for range min(stallLooksMax, len(conns)) {
		if s.hand++; s.hand >= len(conns) {
			s.hand = 0
		}
		c := &conns[s.hand]
		if c.phase != phaseOpen || connIndex(s.hand) == s.by { // its own want is no one else's
			continue
		}
		if n := c.hoards(); n > most {
			worst, most = c, n
		}
	}
	if worst != nil {
		p.n.Reclaimed++
		p.abort(worst, ErrHoarding)
	}
}

// hoards says how many segments of c its peer keeps although it had its time.
func (c *Conn) hoards() int {
	if c.acked >= c.owedTo || c.p.now-c.owedAt < c.p.cfg.StallNs || c.marks&markAbort != 0 || c.tcp.State() == tcp.Closed {
		return 0
	}
	return c.tcp.Held()
}
