package engine

import (
	"context"
	"errors"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/rnic"
)

// The end that connects: a Request, and what the peer's Reply must say.

// Bounds of connecting.
const (
	// attemptWait is for how long one attempt may take.
	attemptWait = 15 * time.Second
	againFirst  = 2 * time.Millisecond
	againLast   = 500 * time.Millisecond
)

// connect tries until there is a connection, or ctx ends.
func (w *way) connect(ctx context.Context, era uint32, done chan struct{}) {
	defer close(done)
	e, told, challenged := w.q.engine, "", false
	for wait := againFirst; ; wait = min(2*wait, againLast) {
		err := w.attempt(ctx)
		if err == nil || ctx.Err() != nil || !w.in(waySeeking) {
			return
		}
		if errors.Is(err, errForeign) || errors.Is(err, errSecret) {
			e.tellError("queue pair 0x%06x to %v: %v", w.own.number, w.peer, err)
			go w.end(era, eventQPFatal) // it waits for us
			return
		}
		if errors.Is(err, errChallenged) && !challenged {
			challenged, wait = true, againFirst/2
			continue
		}
		if text := err.Error(); text != told {
			told = text
			e.tellLog("queue pair 0x%06x to %v: %v", w.own.number, w.peer, err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// attempt is one attempt.
func (w *way) attempt(ctx context.Context) error {
	l, err := w.begin(true, !w.toItself())
	if err != nil {
		return err
	}
	ctx, cancel := awake.Timeout(ctx, attemptWait, nil)
	defer cancel()
	asks := w.request()
	param := w.param(asks)
	param.Check = func(private []byte) error { return w.checkReply(private, asks) }
	if w.within() {
		err = w.startWithin(ctx, l, param)
	} else {
		err = l.rnic.StartConnect(ctx, w.peer.port().String(), param)
	}
	if err == nil {
		err = l.rnic.StartupOver(ctx)
	}
	if err != nil {
		err = w.rejected(err, asks)
		l.end()
		return err
	}
	if !w.serve(l) {
		return errors.New("the connection has ended at once")
	}
	return nil
}

// request is what the Initiator says.
func (w *way) request() *hello {
	h := &hello{flags: helloAcknowledged, to: w.peer, from: w.own}
	if w.q.engine.secret != nil {
		h.proof = proof{nonce: draw(), challenge: w.answers}
	}
	return w.q.engine.proven(ofRequest, h)
}

// errChallenged is about a Request whose proof was none of this connection.
var errChallenged = errors.New("refused: " + proveAgain.String())

// connectionLost is the code of an rnic.MPAError where TCP ended.
const connectionLost = 1

// rejected is err, or why the peer has refused what this end asked.
func (w *way) rejected(err error, asks *hello) error {
	var no *rnic.RejectedError
	var revision *rnic.RevisionError
	var frame *rnic.MPAError
	switch {
	case errors.As(err, &no):
		h, bad := parseHello(no.PrivateData)
		switch {
		case bad != nil || h.answer == notByNumber:
			return errForeign
		case h.answer == otherSecret:
			return errSecret
		case h.answer == proveAgain && w.believesReply(&h, asks):
			w.answers = h.proof.challenge
			return errChallenged
		case h.answer != accepted:
			return errors.New("refused: " + h.answer.String())
		}
	case errors.As(err, &revision), errors.As(err, &frame) && frame.Code != connectionLost:
		return errors.Join(errForeign, err)
	}
	return err
}

// believesReply says whether a Reply is of the peer, and to what this end asked.
func (w *way) believesReply(h, asks *hello) bool {
	return w.q.engine.believes(ofReply, h) && h.proof.nonce == asks.proof.nonce
}

// checkReply is an error unless b is the answer of the peer, which has accepted.
func (w *way) checkReply(b []byte, asks *hello) error {
	h, err := parseHello(b)
	if err != nil {
		return err
	}
	if h.answer != accepted || h.flags&^helloProven != helloAcknowledged || h.to != w.own ||
		h.from != w.peer {
		return errForeign
	}
	if !w.believesReply(&h, asks) {
		return errSecret
	}
	return nil
}

// param is how it connects or accepts, with what it says.
func (w *way) param(h *hello) rnic.ConnParam {
	return rnic.ConnParam{
		PrivateData: h.put(), PeerToPeer: true, NoCRC: w.q.engine.noCRC, Dialect: rnic.RFC6581,
		IRD: w.reads, ORD: readDepthMax, LocalAddr: addrPort(w.own.addr()), Acknowledged: true,
	}
}
