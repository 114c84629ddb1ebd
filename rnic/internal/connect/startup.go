package connect

import (
	"errors"
	"fmt"
	"time"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/stack"
)

// Start-up of a connection: frames in, frames out. mpa.Party decides; what follows for the
// connection is here.
//
//	Initiator                                   Responder
//	established: Request            ---------->  requested: to the ULP
//	replied                         <----------  accept or reject: Reply
//	  Rtr frame, if both have S     ---------->  ready
//	  RTR message, or any FPDU      ---------->  the half that sends opens
//
// culley-02 has none of this: both ends are in full operation when the connection stands.

// Established: the TCP connection stands.
func (l *Connection) Established() {
	l.self, l.Peer = l.Transport.Local(), l.Transport.Remote()
	switch {
	case l.Initiator && l.dialect == mpa.Culley02:
		if err := l.bound(l.Endpoint); err != nil {
			l.Fail(err)
			return
		}
		l.immediate()
	case l.Initiator:
		l.sendRequest()
	case l.Responder.Dialects == mpa.DialectsOf(mpa.Culley02):
		l.requestedImmediate()
	default:
		l.Phase = phaseRequest
		l.Transport.Silent()
		l.Transport.SetTimer(l.Transport.Now() + int64(RequestTimeout))
	}
}

// sendRequest begins the Initiator's start-up.
func (l *Connection) sendRequest() {
	l.Phase = phaseReply
	p := l.Endpoint.party(l, mpa.DialectsOf(l.dialect))
	l.own = p.Request(l.dialect, l.Endpoint.Param.PrivateData)
	l.Out = l.own.Append(nil)
	l.Transport.SetTimer(l.Transport.Now() + int64(replyTimeout))
	l.Transport.Send()
}

// immediate begins full operation without frames, and therefore without a first FPDU to wait for.
func (l *Connection) immediate() {
	mode := mpa.Mode{Markers: true, CRC: true}
	l.RxBase = l.RxNext
	l.enter(&mpa.Terms{Dialect: mpa.Culley02, Agreement: mpa.Agreement{Send: mode, Receive: mode}, IRD: uint16(l.Endpoint.Param.IRD), ORD: uint16(l.Endpoint.Param.ORD)})
	l.firstMarker = true
	if l.Initiator {
		l.Endpoint.Connected <- nil
	}
	l.Transport.Send()
}

// beginsWithMarker says whether octets can be the front of culley-02: FPDUPTR zero, its low two
// bits ignored. Of fewer than four the FPDU's CRC will tell.
func beginsWithMarker(data []byte) bool { return len(data) < 4 || data[2] == 0 && data[3]&^3 == 0 }

// opensCulley02 looks at the first octets of the peer's half. false: the connection ends for them.
// A start-up frame is another dialect's. Anything else but a marker is error 3, unless such a
// segment is to be dropped: the Receiver does that, and the peer sends it again, "usually
// correcting the error, unless the problem was at the source" (draft-culley-iwarp-mpa-02 section
// 9).
func (l *Connection) opensCulley02(data []byte) bool {
	switch {
	case beginsWithMarker(data):
		l.firstMarker = false
	case mpa.BeginsFrame(data):
		l.Fail(ErrFirstMarker)
		return false
	case !l.dropBadCRC:
		l.firstMarker = false
		l.Engine.RejectStream(ErrFirstMarker)
		l.heed()
		return false
	}
	return true
}

// bound sets e's UserTimeout. It fails where the kernel refuses it.
func (l *Connection) bound(e *Endpoint) error {
	d := e.Param.UserTimeout
	if d == 0 {
		return nil
	}
	d = max(d, time.Millisecond) // a part of less would be none, which has another meaning
	if err := l.Transport.GiveUpAfter(d); err != nil {
		return &qp.SetupError{Cause: fmt.Errorf("rnic: ConnParam.UserTimeout %v: %w", d, err)}
	}
	return nil
}

// enter puts the QueuePair into service.
func (l *Connection) enter(t *mpa.Terms) {
	l.Phase = PhaseFull
	l.Transport.EnterFull(l.bufsMax())
	l.Memory = l.Transport.Memory()
	l.Transport.SetTimer(0)
	if t.UnaskedS {
		l.Host.Startup.UnaskedS.Add(1)
	}
	kept := *t
	kept.PrivateData = nil
	l.Endpoint.Terms.Store(&kept)
	l.Endpoint.Param.PrivateData = nil // it is in a frame by now
	l.Start(&kept)
	if l.Initiator {
		l.planWakeUp()
	}
}

// Start puts the engine into service with what start-up agreed.
func (l *Connection) Start(t *mpa.Terms) {
	conn := &l.Endpoint.Param
	l.dropBadCRC, l.packFull = conn.DropBadCRC && !l.InOrder, conn.PackFull
	if l.packFull {
		l.Transport.Nagle()
	}
	l.Engine.Start(&qp.StartOptions{
		Terms: t, Responder: !l.Initiator, Opened: l.Initiator || t.Dialect == mpa.Culley02, EMSS: l.Transport.EMSS(),
		Reader: l.Reader, Pool: l.Pool, BufsMax: l.bufsMax(), Reserve: l.reserve,
		DropBadCRC: l.dropBadCRC, PackFull: l.packFull,
	})
}

func (l *Connection) wantMarkers(e *Endpoint) bool { return !l.InOrder && !e.Param.NoMarkers }

// startup collects and answers the peer's start-up frame. data is next in order; used are the
// octets of it that belong to the frame.
func (l *Connection) startup(data []byte) (used int) {
	if l.Phase == phaseRequest && len(l.In) == 0 && data[0] == 0 && l.Responder.Dialects.Has(mpa.Culley02) {
		l.requestedImmediate() // a marker, where a Request would have its M
		return 0
	}
	had := len(l.In)
	take := min(len(data), l.frameMax()-had)
	l.In = append(l.In, data[:take]...)
	f, n, err := mpa.ParseFrame(l.In, l.expected(), l.privateMax)
	if err != nil {
		l.Fail(err)
		return len(data)
	}
	if n == 0 {
		l.RxNext += uint64(take)
		return take
	}
	used = n - had
	l.RxNext += uint64(used)
	l.RxBase = l.RxNext
	l.In = nil
	if !l.shut { // a closing Responder's timer is the bound of its wait for the peer
		l.Transport.SetTimer(0)
	}
	switch f.Kind {
	case mpa.Reply:
		l.replied(f)
	case mpa.Rtr:
		l.ready(f)
	default:
		l.requested(f)
	}
	return used
}

// frameMax is the longest frame that is taken, of whatever Rev.
func (l *Connection) frameMax() int { return mpa.FrameLen + max(l.privateMax, mpa.PrivateDataMax) }

// expected is the frame that must come next.
func (l *Connection) expected() mpa.FrameKind {
	switch {
	case l.Initiator:
		return mpa.Reply
	case l.awaitsRtr:
		return mpa.Rtr
	}
	return mpa.Request
}

// requested hands a Request to the ULP (rule 2 of RFC 5044 section 7.1.2).
func (l *Connection) requested(f mpa.Frame) {
	if !l.Transport.Spoke() {
		l.Fail(stack.ErrGaveWay)
		return
	}
	if _, ok := l.Responder.Dialects.Serve(&f); !ok {
		asked, _ := mpa.FramedDialects.Serve(&f)
		l.note(&Revision{Revision: int(f.Rev), Asked: asked, Served: l.Responder.Dialects})
		if rep, ok := l.Responder.Dialects.Refusal(&f); ok {
			l.refuse(rep)
			return
		}
		l.Fail(l.Err)
		return
	}
	if _, _, err := f.Enhanced(); err != nil {
		l.Fail(err)
		return
	}
	l.decide(f)
}

// requestedImmediate offers a connection that needs no Request.
func (l *Connection) requestedImmediate() {
	if !l.Transport.Spoke() {
		l.Fail(stack.ErrGaveWay)
		return
	}
	l.RxBase = l.RxNext
	l.decide(mpa.Frame{})
}

func (l *Connection) decide(f mpa.Frame) {
	l.Phase = phaseDecide
	l.Transport.SetTimer(l.Transport.Now() + int64(RequestTimeout))
	if err := l.Responder.Offer(l, f); err != nil {
		l.Fail(err)
	}
}

// replied enters full operation, or not (rule 3).
func (l *Connection) replied(f mpa.Frame) {
	p := l.Endpoint.party(l, mpa.DialectsOf(l.dialect))
	if !p.Accepts(&l.own, &f) {
		re := &Revision{Revision: int(f.Rev), Asked: l.dialect, Served: mpa.DialectsOf(l.dialect), Reply: true, Lower: f.Rev < l.own.Rev}
		if l.fallsBack(l.Phase, re) {
			l.Fail(re) // the next connection does not wait for this one's orderly end
			return
		}
		l.note(re)
		l.Phase = phaseRejecting // RFC 5044 section C.2.2: gracefully
		l.closing()
		return
	}
	if f.Reject {
		l.rejected(f)
		return
	}
	t, err := p.Conclude(&l.own, &f)
	var e *mpa.Error
	if errors.As(err, &e) && e.Code == mpa.ErrStartup {
		l.Fail(err)
		return
	}
	l.Endpoint.Private = append([]byte(nil), t.PrivateData...)
	if err == nil {
		err = l.bound(l.Endpoint)
	}
	if err == nil && t.RtrFrame {
		rtr := mpa.RtrFrame(&l.own, &f)
		l.Out = rtr.Append(l.Out)
	}
	l.enter(&t)
	if err != nil { // RFC 6581 sections 9.1 to 9.3: a Terminate first
		l.Engine.Terminate(err)
		l.heed()
		l.Endpoint.Connected <- l.Err
		return
	}
	l.Endpoint.Connected <- nil
	l.Transport.Send()
}

// rejected: the peer's ULP does not want the connection.
func (l *Connection) rejected(f mpa.Frame) {
	e, private, err := f.Enhanced()
	if err != nil {
		l.Fail(err)
		return
	}
	re := &Rejection{PrivateData: append([]byte(nil), private...), Asked: l.dialect, Rev: int(f.Rev), Enhanced: f.IsEnhanced(), IRD: int(e.IRD), ORD: int(e.ORD)}
	if l.Endpoint.Param.KeepRejected {
		l.note(re)
		l.leave()
		return
	}
	l.Fail(re)
}

// Accept answers the Request and puts e into service.
func (l *Connection) Accept(e *Endpoint, req mpa.Frame) error {
	if l.Phase != phaseDecide {
		return l.OverError()
	}
	if req.Kind == 0 {
		return l.acceptImmediate(e)
	}
	p := e.party(l, l.Responder.Dialects)
	rep, t, err := p.Answer(&req, e.Param.PrivateData)
	if err != nil {
		l.refuse(rep)
		return err
	}
	if err := l.bound(e); err != nil { // no Terminate before the Initiator's first FPDU (DECISIONS 14)
		l.refuse(rejection(req, nil))
		return err
	}
	l.own = rep
	l.Out = rep.Append(l.Out) // after the last streaming message, should a hasty peer not have waited for it
	l.own.PrivateData = nil
	l.Engine, l.Endpoint = e.engine, e
	l.enter(&t)
	if l.awaitsRtr, l.awaitsReady = t.RtrFrame, t.PeerToPeer; t.PeerToPeer {
		l.Transport.SetTimer(l.Transport.Now() + int64(rtrTimeout)) // otherwise the first FPDU is the ULP's, which may take its time
	}
	l.repliedAt = l.Transport.Now()
	l.Transport.Send()
	l.joinAccepted(e)
	return nil
}

func (l *Connection) acceptImmediate(e *Endpoint) error {
	if err := l.bound(e); err != nil {
		l.Fail(err)
		return err
	}
	l.Engine, l.Endpoint = e.engine, e
	l.immediate()
	l.joinAccepted(e)
	return nil
}

func (l *Connection) joinAccepted(e *Endpoint) {
	if err := e.join(l); err != nil {
		l.Fail(err)
		return
	}
	if l.EarlyData != nil {
		l.Edge(l.EarlyData.edge)
	}
	e.sendFirst(l)
}

// ready: the Initiator's Rtr frame is there, and stands for the first FPDU (DECISIONS 5).
func (l *Connection) ready(f mpa.Frame) {
	if f.Rev != l.own.Rev {
		l.Fail(mpa.ErrReadyRev)
		return
	}
	l.awaitsRtr = false
	l.open()
}

// Reject answers with R set. After it the connection is closed or, to keep, a stream again: the
// ULP's choice (DECISIONS 10).
func (l *Connection) Reject(req mpa.Frame, private []byte, keep bool) error {
	if l.Phase != phaseDecide {
		return l.OverError()
	}
	if req.Kind == 0 { // no frames, nothing to say
		l.Fail(ErrClosed)
		return nil
	}
	if keep {
		if l.EarlyData != nil && len(l.EarlyData.Pieces) > 0 {
			l.Fail(ErrPipelined)
			return ErrPipelined
		}
		f := rejection(req, private)
		l.Out = f.Append(l.Out)
		l.leave()
		return nil
	}
	l.refuse(rejection(req, private))
	return nil
}

// rejection is the ULP's No to a Request. An enhanced one gets the enhanced format: depths and
// model as they were asked for, since no end lacks anything.
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

// RejectedTimeout is how long a rejected peer has to close first. Linux siw, for one, loses what
// the Reply says when our FIN comes with it.
const RejectedTimeout = 250 * time.Millisecond

// refuse sends a rejecting Reply, and closes when the peer does or has had the time to.
func (l *Connection) refuse(f mpa.Frame) {
	l.Out = f.Append(l.Out)
	l.Phase = phaseRejecting
	l.Transport.SetTimer(l.Transport.Now() + int64(RejectedTimeout))
	l.Transport.Send()
}

// OverError is why the connection is over, or cannot be asked for what it was asked.
func (l *Connection) OverError() error {
	if l.Err != nil {
		return l.Host.Public(l.Err)
	}
	return ErrState
}

// rtrTimeout bounds the wait for the message that a peer-to-peer Initiator owes.
const rtrTimeout = 10 * time.Second

// party is the QueuePair's part in the negotiation. served are a Responder's dialects; an Initiator
// that named its own is strict, any other takes Rev 0 for an answer.
func (e *Endpoint) party(l *Connection, served mpa.Dialects) mpa.Party {
	o := &e.Param
	p := mpa.Party{
		Dialects: served, Markers: l.wantMarkers(e), CRC: !o.NoCRC, PeerToPeer: o.PeerToPeer, RTR: o.RTR,
		IRD: uint16(o.IRD), ORD: uint16(o.ORD), ORDMin: uint16(o.ORDMin),
	}
	if p.RTR == 0 {
		p.RTR = mpa.AllRTR
	}
	if l.Initiator && !o.Named {
		p.Dialects = mpa.DialectsOf(mpa.RDDP01, mpa.RFC5044)
	}
	return p
}
