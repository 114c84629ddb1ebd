package tcp

// PeerClock times a peer that owes us something: acknowledgments, or octets that are missing. It is
// set to a stream offset and runs until the peer has got there, so an octet now and then does not
// stop it. The zero value is a clock of a peer that owes nothing.
type PeerClock struct {
	to uint64 // the peer owes what is before
	at int64  // since
}

// Advance is called when the peer has got as far as reached, or owes more. A peer that has done all
// that its clock was set for is timed again, for what is before owed.
func (k *PeerClock) Advance(reached, owed uint64, now int64) {
	if reached >= k.to {
		k.to, k.at = owed, now
	}
}

// Owes says whether a peer that has got as far as reached owes something, and since when.
func (k *PeerClock) Owes(reached uint64) (since int64, owes bool) { return k.at, reached < k.to }

// Owes says whether the peer has not yet acknowledged all octets that it owed when its clock was
// set, and since when.
func (c *Conn) Owes() (since int64, owes bool) { return c.owed.Owes(c.AckedOffset()) }
