package rnic

import (
	"context"
	"fmt"
	"net"
	"slices"
)

// A rejected start-up leaves MPA with the TCP connection open, and the ULP may use it otherwise (RFC 5044 section 7.1.2 rules 2
// and 3, DECISIONS 10): ConnRequest.RejectStream and ConnParam.KeepRejected give it back as a stream, at the octet behind the
// Reply in either direction.
//
//	reject or rejected --leave--> what is left of start-up goes out --giveBack--> a net.Conn; the connection is over

// leave gives the connection back.
func (l *connection) leave() {
	l.phase = phaseLeaving
	l.transport.SetTimer(l.transport.Now() + int64(lingerTimeout))
	if len(l.out) == 0 {
		l.transport.GiveBack()
		return
	}
	l.transport.Send()
}

// HandBack ends the connection for nc.
func (l *connection) HandBack(nc net.Conn) {
	l.returned = nc
	if re, ok := l.err.(*RejectedError); ok {
		re.Conn = nc
	}
	l.Over(nil)
}

// discard ends the connection for who does not want it any more, and be it a stream by now.
func (l *connection) discard() {
	if l.returned == nil {
		l.Fail(ErrClosed)
		return
	}
	go func() { _ = l.returned.Close() }() // not for the goroutine that turns the Poller
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
	if err := r.ask(ctx, func() error { return r.connection.reject(r.frame, private, true) }); err != nil {
		return nil, err
	}
	a := r.connection.adapter
	if err := a.wait(ctx, r.connection.gone); err != nil {
		_ = orderUntil(context.WithoutCancel(ctx), a, r.connection.transport.Submit, r.connection.discard) // a stopped Poller has ended it already
		return nil, err
	}
	if r.connection.returned == nil {
		return nil, orClosed(r.connection.err)
	}
	return r.connection.returned, nil
}
