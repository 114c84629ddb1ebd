package connect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/internal/flight"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/stack"
)

// Start-up of a connection: frames in, frames out. mpa.Party decides what is agreed; here is what
// that means for the connection.
//
//	Initiator                                   Responder
//	established: Request            ---------->  requested: to the ULP
//	replied                         <----------  accept or reject: Reply
//	  Rtr frame, if both have S     ---------->  ready
//	  RTR message, or any FPDU      ---------->  the half that sends opens
//
// culley-02 has none of this: both ends are in full operation when the connection stands.

// Established implements stack.Upper.
func (c *Connection) Established() {
	c.self, c.Peer = c.Transport.Local(), c.Transport.Remote()
	switch {
	case c.initiates() && c.dialect == mpa.Culley02:
		if err := c.possible(c.endpoint, &mpa.Terms{}); err != nil {
			c.Fail(err)
			return
		}
		c.immediate()
	case c.initiates():
		c.sendRequest()
	case c.Responder.Dialects == mpa.DialectsOf(mpa.Culley02):
		c.requestedImmediate()
	default:
		c.phase = phaseRequest
		c.Transport.Silent()
		c.setTimer(timerFrame, RequestTimeout)
	}
}

// sendRequest begins the Initiator's start-up.
func (c *Connection) sendRequest() {
	c.phase = phaseReply
	p := c.endpoint.party(c, mpa.DialectsOf(c.dialect))
	c.own = p.Request(c.dialect, c.endpoint.param.PrivateData)
	c.put(&c.own)
	c.Transport.Record(flight.RequestSent, flight.Frame(int(c.own.Rev), false),
		uint64(len(c.own.PrivateData)))
	c.setTimer(timerFrame, replyTimeout)
	c.Transport.Send()
}

// immediate begins full operation without frames, and therefore without a first FPDU to wait for.
func (c *Connection) immediate() {
	mode := mpa.Mode{Markers: true, CRC: true}
	c.rxBase = c.rxNext
	c.enter(&mpa.Terms{
		Dialect: mpa.Culley02, Agreement: mpa.Agreement{Send: mode, Receive: mode},
		IRD: uint16(c.endpoint.param.IRD), ORD: uint16(c.endpoint.param.ORD),
	}, phaseMarker)
	if c.initiates() {
		c.endpoint.startedUp(nil)
	}
	c.Transport.Send()
}

// beginsWithMarker says whether data can begin a stream of culley-02: FPDUPTR is zero, its low two
// bits ignored. Fewer than four octets may; the FPDU's CRC will tell.
func beginsWithMarker(data []byte) bool { return len(data) < 4 || data[2] == 0 && data[3]&^3 == 0 }

// opensCulley02 looks at the first octets of the peer's half. False: they end the connection. A
// start-up frame is another dialect's. Anything else that is no marker is error 3. With DropBadCRC
// the segment goes on to MPA's Receiver, which drops it, and the peer sends it again, "usually
// correcting the error, unless the problem was at the source" (draft-culley-iwarp-mpa-02 section
// 9).
func (c *Connection) opensCulley02(data []byte) bool {
	switch {
	case beginsWithMarker(data):
		c.phase = phaseFull
	case mpa.BeginsFrame(data):
		c.Fail(ErrFirstMarker)
		return false
	case !c.dropBadCRC:
		c.phase = phaseFull
		c.engine.RejectStream(ErrFirstMarker)
		c.heed()
		return false
	}
	return true
}

// possible sets Param.UserTimeout of e. It fails where the kernel refuses it, or where RDMAP's
// version has no place for Param.Acknowledged.
func (c *Connection) possible(e *Endpoint, t *mpa.Terms) error {
	if e.param.Acknowledged && !qp.CanAcknowledge(t) {
		return &qp.SetupError{Cause: errUnacknowledging}
	}
	d := e.param.UserTimeout
	if d == 0 {
		return nil
	}
	// the parts of less that keep-alives get may be 0, which has another meaning
	d = max(d, time.Millisecond)
	if err := c.Transport.GiveUpAfter(d); err != nil {
		return &qp.SetupError{Cause: fmt.Errorf("rnic: ConnParam.UserTimeout %v: %w", d, err)}
	}
	return nil
}

// enter puts the queue pair into service, in the phase p.
func (c *Connection) enter(t *mpa.Terms, p phase) {
	c.phase = p
	c.Transport.Record(flight.InService, uint64(t.Dialect), 0)
	c.Transport.EnterFull(c.bufsMax())
	c.Memory = c.Transport.Memory()
	c.clearTimer()
	if t.UnaskedS {
		c.Host.Startup.UnaskedS.Add(1)
	}
	kept := &c.endpoint.terms
	*kept = *t
	kept.PrivateData = nil
	c.endpoint.Terms.Store(kept)
	c.endpoint.param.Acknowledged = c.endpoint.param.Acknowledged || t.Acknowledged
	c.endpoint.param.PrivateData = nil // it is in a frame by now
	c.start(kept)
	if c.initiates() {
		c.planWakeUp()
	}
}

// bufsMax is how many Bufs MPA may keep of one connection.
func (c *Connection) bufsMax() int { return mpa.BufsMin(c.Stride) + c.Ahead }

// start puts the engine into service with what start-up agreed.
func (c *Connection) start(t *mpa.Terms) {
	conn := &c.endpoint.param
	c.dropBadCRC, c.packFull = conn.DropBadCRC && !c.InOrder, conn.PackFull
	if conn.Acknowledged {
		c.retries = new(retries)
	}
	if c.packFull {
		c.Transport.Nagle()
	}
	c.engine.Start(&qp.StartOptions{
		Terms: t, Responder: !c.initiates(), Opened: c.initiates() || t.Dialect == mpa.Culley02,
		EMSS: c.Transport.EMSS(), Peer: peerKey(c.Peer.Addr()),
		Reader: c.Reader, Pool: c.Pool, BufsMax: c.bufsMax(), Shared: c.shared,
		InOrder: c.InOrder, DropBadCRC: c.dropBadCRC, PackFull: c.packFull,
		Acknowledged: conn.Acknowledged,

		Fill: c.InOrder, // a segment is an skb, and what the kernel does costs more than an FPDU
	})
}

// peerKey tells one peer from another: an IPv4 address, or one /64 of IPv6.
func peerKey(a netip.Addr) uint64 {
	b := a.As16()
	if a.Unmap().Is4() {
		return binary.BigEndian.Uint64(b[8:])
	}
	return binary.BigEndian.Uint64(b[:8])
}

func (c *Connection) wantMarkers(e *Endpoint) bool { return !c.InOrder && !e.param.NoMarkers }

// startup collects and answers the peer's start-up frame. data is next in order; used is how many
// of its octets belong to the frame. The frame's private data may be data's: a caller that keeps it
// longer than this call copies it.
func (c *Connection) startup(data []byte) (used int) {
	if c.phase == phaseRequest && len(c.in) == 0 && data[0] == 0 &&
		c.Responder.Dialects.Has(mpa.Culley02) {
		c.requestedImmediate() // a marker, where a Request would have its M
		return 0
	}
	had := len(c.in)
	take := min(len(data), c.longest()-had)
	frame := data[:take]
	if had > 0 {
		c.in = append(c.in, frame...)
		frame = c.in
	}
	f, n, err := mpa.ParseFrame(frame, c.expected(), c.privateMax)
	if err != nil {
		c.Fail(err)
		return len(data)
	}
	if n == 0 {
		if had == 0 {
			c.in = append(c.in, frame...)
		}
		c.rxNext += uint64(take)
		return take
	}
	used = n - had
	c.rxNext += uint64(used)
	c.rxBase = c.rxNext
	c.in = nil
	if c.timer == timerFrame { // a closing Responder's is the bound of its wait for the peer
		c.clearTimer()
	}
	c.recordFrame(f)
	switch f.Kind {
	case mpa.Reply:
		c.replied(f)
	case mpa.Rtr:
		c.ready(f)
	default:
		c.requested(f)
	}
	return used
}

// recordFrame records a start-up frame that came.
func (c *Connection) recordFrame(f mpa.Frame) {
	k := flight.RequestIn
	switch f.Kind {
	case mpa.Reply:
		k = flight.ReplyIn
	case mpa.Rtr:
		k = flight.ReadyIn
	}
	c.Transport.Record(k, flight.Frame(int(f.Rev), f.Reject), uint64(len(f.PrivateData)))
}

// expected is the kind of frame that must come next.
func (c *Connection) expected() mpa.FrameKind {
	switch {
	case c.initiates():
		return mpa.Reply
	case c.phase == phaseRtrFrame:
		return mpa.Rtr
	}
	return mpa.Request
}

// requested hands a Request to the ULP (rule 2 of RFC 5044 section 7.1.2).
func (c *Connection) requested(f mpa.Frame) {
	if !c.Transport.Spoke() {
		c.Fail(stack.ErrGaveWay)
		return
	}
	if _, ok := c.Responder.Dialects.Serve(&f); !ok {
		asked, _ := mpa.FramedDialects.Serve(&f)
		c.note(&Revision{Revision: int(f.Rev), Asked: asked, Served: c.Responder.Dialects})
		if rep, ok := c.Responder.Dialects.Refusal(&f); ok {
			c.refuse(rep)
			return
		}
		c.Fail(c.Err)
		return
	}
	if _, _, err := f.Enhanced(); err != nil {
		c.Fail(err)
		return
	}
	c.decide(f)
}

// requestedImmediate offers a connection that needs no Request.
func (c *Connection) requestedImmediate() {
	if !c.Transport.Spoke() {
		c.Fail(stack.ErrGaveWay)
		return
	}
	c.rxBase = c.rxNext
	c.decide(mpa.Frame{})
}

// decide offers the connection to the ULP.
func (c *Connection) decide(f mpa.Frame) {
	c.phase = phaseDecide
	c.setTimer(timerDecision, RequestTimeout)
	if err := c.Responder.Offer(c, f); err != nil {
		c.Host.Refuse(RefusedBacklog)
		c.Fail(err)
	}
}

// replied enters full operation, or not (rule 3 of RFC 5044 section 7.1.2).
func (c *Connection) replied(f mpa.Frame) {
	p := c.endpoint.party(c, mpa.DialectsOf(c.dialect))
	if !p.Accepts(&c.own, &f) {
		re := &Revision{Revision: int(f.Rev), Asked: c.dialect, Served: mpa.DialectsOf(c.dialect),
			Reply: true, Lower: f.Rev < c.own.Rev}
		if c.fallsBack(c.phase, re) {
			c.Fail(re) // the next connection does not wait for this one's orderly end
			return
		}
		c.note(re)
		c.phase = phaseRejecting // RFC 5044 section C.2.2: gracefully
		c.closing()
		return
	}
	if f.Reject {
		c.rejected(f)
		return
	}
	t, err := p.Conclude(&c.own, &f)
	if err != nil && isStartup(err) {
		c.Fail(err)
		return
	}
	if check := c.endpoint.param.Check; err == nil && check != nil {
		if err := check(t.PrivateData); err != nil {
			c.Fail(err)
			return
		}
	}
	c.endpoint.Private = append([]byte(nil), t.PrivateData...)
	if err == nil {
		err = c.possible(c.endpoint, &t)
	}
	if err == nil && t.RtrFrame {
		rtr := mpa.RtrFrame(&c.own, &f)
		c.put(&rtr)
	}
	c.enter(&t, phaseFull)
	if err != nil { // RFC 6581 sections 9.1 to 9.3: a Terminate first
		c.engine.Terminate(err)
		c.heed()
		c.endpoint.startedUp(c.Err)
		return
	}
	c.endpoint.startedUp(nil)
	c.Transport.Send()
}

// isStartup says whether err is MPA's error 4, which the peer is told nothing about.
func isStartup(err error) bool {
	var e *mpa.Error
	return errors.As(err, &e) && e.Code == mpa.ErrStartup
}

// rejected ends the connection, which the peer's ULP does not want, or gives it back as a stream.
func (c *Connection) rejected(f mpa.Frame) {
	e, private, err := f.Enhanced()
	if err != nil {
		c.Fail(err)
		return
	}
	re := &Rejection{PrivateData: append([]byte(nil), private...), Asked: c.dialect, Rev: int(f.Rev),
		Enhanced: f.IsEnhanced(), IRD: int(e.IRD), ORD: int(e.ORD)}
	if c.endpoint.param.KeepRejected {
		c.note(re)
		c.toStream()
		return
	}
	c.Fail(re)
}

// Accept answers the Request and puts e, which is Connecting, into service. After an error without
// a connection (e.Connection) the caller finishes e.
func (c *Connection) Accept(e *Endpoint, req mpa.Frame) error {
	if c.phase != phaseDecide {
		return c.OverError()
	}
	if req.Kind == 0 {
		return c.acceptImmediate(e)
	}
	p := e.party(c, c.Responder.Dialects)
	rep, t, err := p.Answer(&req, e.param.PrivateData)
	if err != nil {
		c.Host.Refuse(RefusedReadDepth)
		c.refuse(rep)
		return err
	}
	if err := c.possible(e, &t); err != nil {
		// no Terminate before the Initiator's first FPDU (DECISIONS 14)
		c.Host.Refuse(RefusedSystem)
		c.refuse(rejection(req, nil))
		return err
	}
	c.own = rep
	c.recordReply(rep)
	c.put(&rep) // after the last streaming message, if a hasty peer has not waited for that
	c.own.PrivateData = nil
	c.engine, c.endpoint = e.engine, e
	switch {
	case t.RtrFrame:
		c.enter(&t, phaseRtrFrame)
	case t.PeerToPeer:
		c.enter(&t, phaseRtr)
	default:
		c.enter(&t, phaseFull)
	}
	if c.phase.awaitsRtr() { // otherwise the first FPDU is the ULP's, which may take its time
		c.setTimer(timerFrame, rtrTimeout)
	}
	c.repliedAt = c.Transport.Now()
	c.Transport.Send()
	c.joinAccepted(e)
	return nil
}

func (c *Connection) acceptImmediate(e *Endpoint) error {
	if err := c.possible(e, &mpa.Terms{}); err != nil {
		c.Host.Refuse(RefusedSystem)
		c.Fail(err)
		return err
	}
	c.engine, c.endpoint = e.engine, e
	c.immediate()
	c.joinAccepted(e)
	return nil
}

func (c *Connection) joinAccepted(e *Endpoint) {
	if err := e.join(c); err != nil {
		c.Fail(err)
		return
	}
	if c.early != nil {
		c.Edge(c.early.edge) // of connection.go: what waited for the ULP's decision is taken now
	}
	e.sendFirst(c)
}

// ready takes the Initiator's Rtr frame, which stands for its first FPDU (DECISIONS 5).
func (c *Connection) ready(f mpa.Frame) {
	if f.Rev != c.own.Rev {
		c.Fail(mpa.ErrReadyRev)
		return
	}
	c.phase = phaseRtr
	c.open()
}

// Reject answers the Request with R set. Then the connection is closed, or with keep a stream
// again: the ULP's choice (DECISIONS 10).
func (c *Connection) Reject(req mpa.Frame, private []byte, keep bool) error {
	if c.phase != phaseDecide {
		return c.OverError()
	}
	c.Host.Refuse(RefusedULP)
	if req.Kind == 0 { // no frames, nothing to say
		c.Fail(ErrClosed)
		return nil
	}
	if keep {
		if c.early != nil && len(c.early.pieces) > 0 {
			c.Fail(ErrPipelined)
			return ErrPipelined
		}
		f := rejection(req, private)
		c.recordReply(f)
		c.put(&f)
		c.toStream()
		return nil
	}
	c.refuse(rejection(req, private))
	return nil
}

// rejection is the Reply that says No to a Request. The Reply to an enhanced Request is enhanced
// too, with the depths and the model that were asked for, since neither end lacks anything.
func rejection(req mpa.Frame, private []byte) mpa.Frame {
	f := mpa.Preferences{CRC: true, Rev: req.Rev}.Frame(mpa.Reply, private)
	f.Reject = true
	if e, _, _ := req.Enhanced(); req.IsEnhanced() { // it was well formed when it was offered
		f.S = true
		answer := mpa.Enhanced{PeerToPeer: e.PeerToPeer, RTR: e.RTR, IRD: e.ORD, ORD: e.IRD}
		f.PrivateData = append(answer.Append(nil), private...)
	}
	return f
}

// recordReply records the Reply that this end sends.
func (c *Connection) recordReply(f mpa.Frame) {
	c.Transport.Record(flight.ReplySent, flight.Frame(int(f.Rev), f.Reject),
		uint64(len(f.PrivateData)))
}

// refuse sends a rejecting Reply. The connection is closed when the peer closes its half, or after
// RejectedTimeout.
func (c *Connection) refuse(f mpa.Frame) {
	c.recordReply(f)
	c.put(&f)
	c.phase = phaseRejecting
	c.setTimer(timerRejected, RejectedTimeout)
	c.Transport.Send()
}

// OverError is why the connection is over, or that it cannot do what it was asked for.
func (c *Connection) OverError() error {
	if c.Err != nil {
		return c.Host.Public(c.Err)
	}
	return ErrState
}

// party is the queue pair's part in the negotiation. served are a Responder's dialects. An
// Initiator that named its dialect is strict; any other accepts a Reply of Rev 0 too.
func (e *Endpoint) party(c *Connection, served mpa.Dialects) mpa.Party {
	o := &e.param
	p := mpa.Party{
		Dialects: served, Markers: c.wantMarkers(e), CRC: !o.NoCRC, PeerToPeer: o.PeerToPeer, RTR: o.RTR,
		IRD: uint16(o.IRD), ORD: uint16(o.ORD), ORDMin: uint16(o.ORDMin),
		Acknowledged: o.MayAcknowledge,
	}
	if p.RTR == 0 {
		p.RTR = mpa.AllRTR
	}
	if c.initiates() && !o.Named {
		p.Dialects = mpa.DialectsOf(mpa.RDDP01, mpa.RFC5044)
	}
	return p
}
