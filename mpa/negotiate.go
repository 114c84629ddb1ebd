package mpa

// Party is what one end brings to start-up: the local half of the negotiation. With it the outcome
// is a function of the two frames alone (agree does markers and CRC).
//
//	Initiator                                 Responder
//	Party.Request  ------- Request ------->   Party.Answer
//	Party.Conclude <-------- Reply --------
//	Terms                                     Terms
type Party struct {
	// Initiator: the one to ask in, and with others those it takes for an answer; Responder: those
	// it serves
	Dialects Dialects
	Markers  bool // wanted in what we receive
	CRC      bool

	PeerToPeer bool     // Initiator: the Responder may be the first to send
	RTR        RTRKinds // this end can do; at least one
	// Read Requests that this end can serve at a time; DepthULP: the ULPs settle it
	IRD    uint16
	ORD    uint16 // Read Requests that this end wants to have under way; DepthULP likewise
	ORDMin uint16 // Responder: with a smaller ORD it rejects

	Acknowledged bool // acknowledged mode of rnic, if both ends want it
}

// Terms are what start-up has agreed, seen from one end.
type Terms struct {
	Agreement
	Dialect    Dialect
	PeerToPeer bool // the Responder may send once it was told that the Initiator is ready

	// How it is told: by a Ready-to-Receive frame, or by an RTR message. For an Initiator RTR is
	// the one to send, for a Responder those of which one will come.
	RtrFrame bool
	RTR      RTRKinds

	// Read depths of this end, settled between the two of an enhanced dialect; otherwise what the
	// Party wished, for the ULPs to settle.
	IRD, ORD uint16
	Enhanced bool
	Peer     Enhanced // what the peer's frame said

	Acknowledged bool // both ends want it

	PrivateData []byte // of the peer's ULP; aliases the frame's
	// a Reply had the S bit where the Request had not: treated as zero (DECISIONS 3)
	UnaskedS bool
}

// Errors of establishment. The Initiator tells the peer of the first three with a Terminate of
// layer 2, type 0 and their code (RFC 6581 sections 8 to 9.3, DECISIONS 14).
var (
	ErrIRD = &Error{Code: ErrInsufficientIRD,
		What: "the peer's ORD is more than this end can serve"}
	ErrRTR   = &Error{Code: ErrNoMatchingRTR, What: "no RTR message that both ends support"}
	ErrModel = &Error{Code: ErrLocalCatastrophic,
		What: "the Reply answers another connection model than was asked for"}
	ErrPlain = &Error{Code: ErrStartup,
		What: "an enhanced Request was answered with a Reply that is not"}
	ErrORDShort = &Error{Code: ErrInsufficientIRD,
		What: "the Initiator's IRD is less than the ORD this end needs"}
)

// Request is the Initiator's frame in dialect d. private is the ULP's; more than d.PrivateDataMax
// panics.
func (p *Party) Request(d Dialect, private []byte) Frame {
	f := Preferences{Markers: p.Markers, CRC: p.CRC, Rev: d.Rev()}.Frame(Request, private)
	switch d {
	case RTR:
		f.S = true
	case RFC6581:
		f.S, f.Acknowledged = true, p.Acknowledged
		e := Enhanced{PeerToPeer: p.PeerToPeer, IRD: p.IRD, ORD: p.ORD}
		if p.PeerToPeer {
			e.RTR = p.RTR
		}
		f.PrivateData = append(e.Append(make([]byte, 0, EnhancedLen+len(private))), private...)
	}
	return f
}

// Answer is the Responder's accepting Reply to a Request whose dialect it serves, and what follows
// from both. With ErrORDShort the Reply rejects instead, and says which ORD was needed. private is
// the ULP's.
func (p *Party) Answer(req *Frame, private []byte) (rep Frame, t Terms, err error) {
	offered, theirs, err := req.Enhanced()
	if err != nil {
		return Frame{}, Terms{}, err
	}
	d, _ := p.Dialects.Serve(req)
	rep = Preferences{Markers: p.Markers, CRC: p.CRC || req.CRC, Rev: d.Rev()}.Frame(Reply, private)
	t = Terms{Dialect: d, IRD: p.IRD, ORD: p.ORD, Peer: offered, PrivateData: theirs}
	switch {
	case req.IsEnhanced():
		mine := p.settle(offered)
		rep.S, rep.PrivateData = true,
			append(mine.Append(make([]byte, 0, EnhancedLen+len(private))), private...)
		t.Enhanced, t.PeerToPeer, t.RTR = true, mine.PeerToPeer, mine.RTR
		t.IRD, t.ORD = unless(mine.IRD, p.IRD), unless(mine.ORD, p.ORD)
		t.Acknowledged = p.Acknowledged && req.Acknowledged
		rep.Acknowledged = t.Acknowledged
		if mine.ORD < p.ORDMin { // RFC 6581 section 9.1: the Reply says what would have been enough
			rep.Reject = true
			mine.ORD = p.ORDMin
			mine.Append(rep.PrivateData[:0])
			return rep, Terms{}, ErrORDShort
		}
	case p.Dialects.AsksReady(req):
		rep.S, t.RtrFrame, t.PeerToPeer = true, true, true
	}
	t.Agreement = agree(rep, *req)
	return rep, t, nil
}

// unless is what an end goes on with when it says said: its own value where it leaves the matter to
// the ULPs.
func unless(said, own uint16) uint16 {
	if said == DepthULP {
		return own
	}
	return said
}

// settle is the Responder's answer to an Initiator's data (RFC 6581 sections 9.1 and 9.2).
func (p *Party) settle(offered Enhanced) Enhanced {
	mine := Enhanced{PeerToPeer: offered.PeerToPeer, IRD: min(p.IRD, offered.ORD),
		ORD: min(p.ORD, offered.IRD)}
	if mine.PeerToPeer {
		if mine.RTR = p.RTR & offered.RTR; mine.RTR == 0 {
			mine.RTR = p.RTR // at least one, and be it none that was asked for
		}
		if mine.RTR&RTRRead != 0 {
			mine.IRD = max(mine.IRD, 1)
		}
	}
	if offered.ORD == DepthULP || p.IRD == DepthULP {
		mine.IRD = DepthULP
	}
	if offered.IRD == DepthULP || p.ORD == DepthULP {
		mine.ORD = DepthULP
	}
	return mine
}

// Accepts says whether the Initiator goes on with a Reply of this Rev: its own, and Rev 0 to Rev 1
// where that is among its Dialects (a permissive end in the words of RFC 5044 section C.1).
func (p *Party) Accepts(req, rep *Frame) bool {
	return rep.Rev == req.Rev || rep.Rev == 0 && req.Rev == 1 && p.Dialects.Has(RDDP01)
}

// Conclude is the Initiator's reading of an accepting Reply to req. An error of code 4 closes the
// connection at once; any other of RFC 6581's is told in a Terminate, under the Terms.
func (p *Party) Conclude(req, rep *Frame) (t Terms, err error) {
	t = Terms{Agreement: agree(*req, *rep), Dialect: RFC5044, IRD: p.IRD, ORD: p.ORD}
	switch {
	case rep.Rev >= 2:
		t.Dialect = RFC6581
	case rep.Rev == 0:
		t.Dialect = RDDP01
	}
	if t.Peer, t.PrivateData, err = rep.Enhanced(); err != nil {
		return t, err
	}
	switch {
	case req.IsEnhanced() && !rep.IsEnhanced():
		return t, ErrPlain
	case req.IsEnhanced():
		t.Enhanced, t.Acknowledged = true, req.Acknowledged && rep.Acknowledged
		return t, p.adopt(&t)
	case rep.S && !req.S:
		t.UnaskedS = true
	case rep.S:
		t.RtrFrame, t.PeerToPeer = true, true
		if rep.Rev == 1 {
			t.Dialect = RTR
		}
	}
	return t, nil
}

// adopt takes over the Responder's values (RFC 6581 sections 9.1 and 9.2).
func (p *Party) adopt(t *Terms) error {
	if t.Peer.PeerToPeer != p.PeerToPeer {
		return ErrModel
	}
	t.PeerToPeer = p.PeerToPeer
	if t.Peer.ORD != DepthULP && t.Peer.ORD > p.IRD {
		return ErrIRD
	}
	if t.Peer.IRD != DepthULP {
		t.ORD = min(p.ORD, t.Peer.IRD)
	}
	if !t.PeerToPeer {
		return nil
	}
	kinds := p.RTR & t.Peer.RTR
	if t.Peer.IRD == 0 {
		// A Read is one more than the Responder serves: "the initiator MUST set [...] its ORD at
		// most to the responder IRD" (section 9.1). One that means it raises its IRD to 1.
		kinds &^= RTRRead
	}
	if t.RTR = kinds.choose(); t.RTR == 0 {
		return ErrRTR
	}
	return nil
}

// RtrFrame is the Initiator's Ready-to-Receive frame: C as the Reply says, no private data
// (peer-to-peer proposal, items 2 and 3).
func RtrFrame(req, rep *Frame) Frame {
	return Frame{Kind: Rtr, Markers: req.Markers, CRC: rep.CRC, Rev: rep.Rev}
}
