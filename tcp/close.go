package tcp

// CloseSend sends a FIN after what is queued; nothing more can be pushed. Receiving goes on
// until the peer's FIN. Before the handshake is done it ends an active open, and a passive one as
// soon as it is established. A second call does nothing.
func (c *Conn) CloseSend(now int64) {
	switch c.state {
	case Closed:
	case SynSent:
		c.finish(0)
	case SynReceived:
		c.finQueued = true // establish goes on from here
	case Established, CloseWait:
		if !c.finQueued {
			c.queueFIN(now)
		}
	}
}

// queueFIN puts the FIN after the last record: it is retransmitted, SACKed and acknowledged as
// one.
func (c *Conn) queueFIN(now int64) {
	c.finQueued = true
	c.noMemory = len(c.sent.recs) == 0 && !c.provideRecord()
	if c.noMemory {
		c.due |= dueFIN // Next tries again; the state says so only when the FIN stands in the ring
		return
	}
	c.noteOutstanding(now)
	c.sent.append(c.pushed, NoHandle, 0, recFIN)
	if c.state == CloseWait {
		c.enter(LastAck)
	} else {
		c.enter(FinWait1)
	}
	if c.sent.una == c.sent.nxt {
		c.armRetransmit(now)
	}
}

// Abort gives up at once: Next gives the RST where RFC 9293 section 3.10.5 wants one, and EvClosed
// follows. Nothing else is sent or received; handles come back through Release.
func (c *Conn) Abort(now int64) {
	switch c.state {
	case Closed:
		return
	case SynSent, Closing, LastAck, TimeWait:
		c.finish(0)
		return
	}
	c.finish(0)
	c.events &^= EvClosed
	c.due = dueAbort
}

// Reusable says whether a SYN that arrived in TIME-WAIT may open the connection again (RFC 9293
// section 3.6.1, RFC 6191): its sequence number, or its timestamp, is above all that the old
// connection saw. The caller then calls EndTimeWait and Accept.
func (c *Conn) Reusable(syn *Segment) bool {
	if c.state != TimeWait || syn.Flags&(SYN|ACK|RST|FIN) != SYN {
		return false
	}
	switch stamped := syn.Options.HasTimestamps && !c.mem.cfg.NoTimestamps; {
	case stamped && !c.useTS:
		return true // all that is old has none
	case stamped && syn.Options.TSval != c.tsRecent:
		return int32(syn.Options.TSval-c.tsRecent) > 0
	}
	return c.rcvNxt().Less(syn.Seq)
}

// Redialable says whether Connect may reopen a connection in TIME-WAIT to the same port of the
// peer: by their timestamps old segments are known in either direction. The peer's clock must have
// ticked for that, which may take a second (RFC 7323 section 5.4; Linux: tcp_tw_reuse). The caller
// then calls EndTimeWait and Connect, with an ISS beyond SndNxt.
func (c *Conn) Redialable(now int64) bool {
	return c.state == TimeWait && c.useTS && now-(c.timers.laterAt-c.mem.cfg.TimeWaitNs) > redialNs
}

// RedialableHeld is Redialable for a port that the application has chosen itself: without the wait,
// as Linux has it for sockets that are bound (tcp_twsk_unique). An old segment of the peer's whose
// clock has not ticked since is then known by its sequence number alone, below the peer's new ones
// (RFC 6528 section 3).
func (c *Conn) RedialableHeld() bool { return c.state == TimeWait && c.useTS }

// EndTimeWait closes a connection in TIME-WAIT early, for Accept to follow a Reusable SYN; else it
// does nothing.
func (c *Conn) EndTimeWait() {
	if c.state == TimeWait {
		c.finish(0)
	}
}
