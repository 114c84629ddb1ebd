package rnic

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/rnicd/rnicd/stream"
)

// A rejected start-up leaves MPA with the TCP connection open, and the ULP may use it otherwise (RFC 5044 section 7.1.2 rules 2
// and 3, DECISIONS 10): ConnRequest.RejectStream and ConnParam.KeepRejected give it back as a stream, at the octet behind the
// Reply in either direction.
//
//	reject or rejected --leave--> what is left of start-up goes out --giveBack--> a net.Conn; the link is over

// leave gives the connection back.
func (l *link) leave() {
	l.phase = phaseLeaving
	l.car.setTimer(l.car.now() + int64(lingerTimeout))
	if len(l.out) == 0 {
		l.car.giveBack()
		return
	}
	l.car.send()
}

// handBack ends the link for nc.
func (l *link) handBack(nc net.Conn) {
	l.returned = nc
	if re, ok := l.err.(*RejectedError); ok {
		re.Conn = nc
	}
	l.over(nil)
}

// discard ends the connection for who does not want it any more, and be it a stream by now.
func (l *link) discard() {
	if l.returned == nil {
		l.fail(ErrClosed)
		return
	}
	go func() { _ = l.returned.Close() }() // not for the goroutine that turns the Poller
}

// giveBack: Woken comes in a moment, in which nothing else of the link's runs.
func (u *onPoller) giveBack() {
	u.giving = true
	if u.conn != nil {
		u.conn.Wake()
	}
}

// becomeStream is Woken's answer.
func (u *onPoller) becomeStream() {
	u.giving = false
	c, l := u.conn, u.link
	nc, err := stream.Attach(u.poller, c, l.rxBase, u.acked, u.fin, stream.Options{})
	if err != nil {
		l.fail(err)
		return
	}
	l.handBack(nc)
	l.lane.leave(l)
	u.waker.Store(nil)
	u.conn = nil
}

// giveBack makes the goroutines end and leave the socket open.
func (s *onSocket) giveBack() {
	s.giving = true
	_ = s.nc.SetReadDeadline(s.start) // long ago: ends a blocked read
	s.changed.Broadcast()
	s.wake()
}

// returnSocket is the last thing of the link's: both goroutines have ended. mu is held.
func (s *onSocket) returnSocket() {
	if err := s.nc.SetReadDeadline(noDeadline); err != nil {
		s.giving = false // it is broken: nothing to give back
		_ = s.nc.Close()
		s.link.over(socketError(err))
		return
	}
	if len(s.rest) == 0 {
		s.link.handBack(s.nc)
		return
	}
	s.link.handBack(&prefixedConn{TCPConn: s.nc, rest: s.rest})
}

// RejectStream answers the Request as Reject does and returns the connection in streaming mode, for the ULP to use or to close:
// the peer's ULP, if it keeps it too, reads on at the octet behind the Reply. It blocks until the Reply is on its way. What a
// hasty peer has sent behind its Request is the stream's; but the connection is reset when that came before AcceptStream took a
// stream over. culley-02 has no Reply, and fails.
func (r *ConnRequest) RejectStream(ctx context.Context, private []byte) (net.Conn, error) {
	if r.frame.Kind == 0 {
		return nil, ErrState
	}
	if err := privateDataError(private, r.Dialect()); err != nil {
		return nil, fmt.Errorf("rnic: reject %v: %w", r.remote, err)
	}
	private = slices.Clone(private)
	if err := r.ask(ctx, func() error { return r.link.reject(r.frame, private, true) }); err != nil {
		return nil, err
	}
	a := r.link.adapter
	if err := a.wait(ctx, r.link.gone); err != nil {
		_ = orderUntil(context.WithoutCancel(ctx), a, r.link.car.submit, r.link.discard) // a stopped Poller has ended it already
		return nil, err
	}
	if r.link.returned == nil {
		return nil, orClosed(r.link.err)
	}
	return r.link.returned, nil
}
