package stack

import "github.com/rnicd/rnicd/tcp"

// demand is for memory that there would be without connections of late peers.
type demand struct {
	made bool
	by   connIndex // the one that makes it; noConn: several, or those that hold nothing
	bufs bool      // it is for Bufs, not only for records
	late int64     // peers that have owed since then are
	seen int       // connections looked at since it was last made
}

// demanded says that memory is demanded.
func (s *pressure) demanded() bool { return s.needs.made || s.wants.made }

// need notes that connection i gets no further, or not as fast as its path allows, without Bufs;
// noConn: several do not.
func (s *pressure) need(i connIndex) { s.needs.add(i, true) }

// want notes that connection i would do better with Bufs.
func (s *pressure) want(i connIndex) { s.wants.add(i, true) }

// needRecords notes that there were no records of sent segments for some connection.
func (s *pressure) needRecords() { s.needs.add(noConn, false) }

func (d *demand) add(i connIndex, bufs bool) {
	if d.made && d.by != i {
		i = noConn
	}
	d.made, d.by, d.bufs, d.seen = true, i, d.bufs || bufs, 0
}

// lookedAt ends a demand for which n more connections, and so all, were looked at in vain.
func (d *demand) lookedAt(n, all int) {
	if d.seen += n; d.seen >= all {
		*d = demand{}
	}
}

// floor is how many Bufs beyond the reserve c leaves to others.
func (s *pressure) floor(c *Conn) int {
	if c.acked == 0 {
		return s.budget.Proven
	}
	return 0
}

// claimed says that others, which hold nothing, wait for one of the free Bufs.
func (s *pressure) claimed(free int) bool {
	return s.waiting.n > 0 || s.unproven.n > 0 && free >= s.budget.Proven
}

// PeerClock times a peer that owes us something: acknowledgments, or octets that are missing.
type PeerClock = tcp.PeerClock
