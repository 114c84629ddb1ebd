package tcp

// Half is a connection in SYN-RECEIVED as a listener keeps it: what the peer's SYN said and what it
// was answered, without a Conn (the SYN cache of RFC 4987 section 3.5). Its owner sends what SynAck
// makes, again and again until the peer answers; Judge says what an answer is worth, and Resume
// makes it a Conn. 40 octets, no pointers.
type Half struct {
	iss, irs Seq
	tsOffset uint32
	tsVal    uint32
	sentAt   int64 // of the first SYN,ACK
	window   uint16
	mss      uint16
	scale    int8
	sack, ts bool
	flags    Flags // of the SYN
	sends    uint8 // SYN,ACKs made, saturating; 0 in a Half that FromCookie made
	tries    uint8 // of those, the first and by timer
}

// NewHalf is that of a segment the caller has found to be a SYN (no RST, no ACK). Octets on the SYN
// are not taken.
func NewHalf(iss Seq, tsOffset uint32, syn *Segment) Half {
	o := &syn.Options
	return Half{
		iss: iss, irs: syn.Seq, tsOffset: tsOffset, tsVal: o.TSval, window: syn.Window, mss: o.MSS,
		scale: o.WindowScale,
		sack:  o.SACKPermitted, ts: o.HasTimestamps, flags: syn.Flags,
	}
}

// syn is the SYN again, as far as Accept reads it.
func (h *Half) syn(s *Segment) {
	*s = Segment{Seq: h.irs, Flags: h.flags, Window: h.window, HdrLen: HeaderLenMin}
	s.Options = Options{MSS: h.mss, WindowScale: h.scale, SACKPermitted: h.sack, HasTimestamps: h.ts,
		TSval: h.tsVal}
}

// SynAck makes h's SYN,ACK with the help of template, a Conn in CLOSED that is used for nothing
// else, so that there is only one way to answer a SYN. timed: the retransmission timer asks, not
// the peer.
func (h *Half) SynAck(now int64, id ID, template *Conn, timed bool, t *Transmit) {
	h.make(now, id, template, t)
	t.Retransmit = h.sends > 0
	if h.sends == 0 {
		h.sentAt = now
	}
	if h.sends < 255 {
		h.sends++
	}
	if timed && h.tries < 255 {
		h.tries++
	}
}

func (h *Half) make(now int64, id ID, template *Conn, t *Transmit) {
	var s Segment
	h.syn(&s)
	template.Accept(now, id, h.iss, h.tsOffset, &s)
	template.Next(now, 1, t)
	template.finish(0)
	template.events = 0
}

// Tries is how often SynAck was timed.
func (h *Half) Tries() int { return int(h.tries) }

// Judgment is what a Half's owner does with a segment.
type Judgment uint8

const (
	HalfIgnore Judgment = iota
	// send the SYN,ACK again: it is also the ACK that RFC 9293 section 3.10.7.4 asks for
	HalfAgain
	HalfReset  // answer as ResetFor does; the Half stays
	HalfForget // the peer has reset it: back to LISTEN
	HalfRenew  // a new SYN takes its place
	HalfOpen   // the peer has acknowledged the SYN: Resume, then Input this segment
)

// Judge is RFC 9293 section 3.10.7.4 for SYN-RECEIVED after a passive open, in the RFC's order, up
// to where a Conn takes over. cfg is that of the Conns.
func (h *Half) Judge(cfg *Config, s *Segment) Judgment {
	at := s.Seq.Sub(h.irs + 1)
	wnd := min(cfg.ReceiveWindow, 65535) // a SYN,ACK's window is not scaled
	switch {
	case s.Flags&RST != 0:
		if at == 0 {
			return HalfForget
		}
		if at > 0 && at < wnd {
			return HalfAgain // RFC 5961 section 3.2
		}
		return HalfIgnore
	case s.Flags&SYN != 0:
		if s.Flags&ACK == 0 && at >= 0 && at < wnd {
			return HalfRenew // back to LISTEN, which is where the next SYN would find us
		}
		h.stampAgain(s)
		return HalfAgain
	case h.ts && !cfg.NoTimestamps && s.Options.HasTimestamps && int32(s.Options.TSval-h.tsVal) < 0:
		// RFC 7323 section 5.3
		return HalfAgain
	}
	n := s.SeqLen()
	switch {
	case n == 0 && (at < 0 || at > wnd), n > 0 && (at >= max(wnd, 1) || at+n <= 0):
		return HalfAgain
	case s.Flags&ACK == 0:
		return HalfIgnore
	case s.Ack != h.iss+1:
		return HalfReset
	}
	return HalfOpen
}

// stampAgain takes the timestamp of the peer's SYN that has come again (RFC 7323 section 4.3, rule
// 2), so that the SYN,ACK echoes that one: by the echo of the first the peer would measure how long
// it waited for a SYN,ACK that was lost.
func (h *Half) stampAgain(syn *Segment) {
	o := &syn.Options
	if syn.Flags&ACK == 0 && syn.Seq == h.irs && o.HasTimestamps && int32(o.TSval-h.tsVal) > 0 {
		h.tsVal = o.TSval
	}
}

// Resume starts c as Accept of h's SYN would, as if Next had given the SYN,ACK that SynAck made.
// Input of the segment that Judge found HalfOpen follows.
func (c *Conn) Resume(now int64, id ID, h *Half) {
	var s Segment
	var t Transmit
	h.syn(&s)
	c.Accept(now, id, h.iss, h.tsOffset, &s)
	c.Next(now, 1, &t)
	c.timers.sentAt, c.timers.synSends, c.timers.synTries = h.sentAt, h.sends, uint16(h.tries)
	c.flow.segsOut = uint64(h.sends)
}

// Reset is the RST that ends h. cfg is that of the Conns.
func (h *Half) Reset(now int64, id ID, cfg *Config, t *Transmit) {
	*t = Transmit{ID: id, Seq: h.iss + 1, Ack: h.irs + 1, Flags: RST | ACK, Handle: NoHandle}
	o := &t.Options
	o.clear()
	if h.ts && !cfg.NoTimestamps { // as Conn.Abort
		o.HasTimestamps, o.TSval, o.TSecr = true, uint32(now/timestampTickNs)+h.tsOffset, h.tsVal
	}
}

// ISS is our initial sequence number.
func (h *Half) ISS() Seq { return h.iss }
