package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"syscall"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// Ids of RDMA_PS_UDP make no connection. What InfiniBand does with service id resolution (IBTA,
// section 12.11) is done by start-up of a connection that is never made: an MPA Request asks, and a
// Reply that rejects it has the number and the Q_Key (docs/adr/0048-datagrams.md). So listeners are
// those of connections, with their bounds. The private data of both is, in network order:
//
//	0  magic            4
//	4  version          1
//	5  0, or an answer's status: enum ib_cm_sidr_status
//	6  0                2
//	8  number           4
//	12 Q_Key            4
//	16 the program's private data
type service struct {
	status       uint8
	number, qkey uint32
	private      []byte
}

const (
	serviceMagic   = 0x726e7371
	serviceVersion = 1
	serviceLen     = 16

	serviceFound       = 0
	serviceUnsupported = 1 // nobody listens there, or not for this
	serviceRejected    = 2
)

func (s *service) put() []byte {
	b := make([]byte, serviceLen, serviceLen+len(s.private))
	binary.BigEndian.PutUint32(b, serviceMagic)
	b[4], b[5] = serviceVersion, s.status
	binary.BigEndian.PutUint32(b[8:], s.number)
	binary.BigEndian.PutUint32(b[12:], s.qkey)
	return append(b, s.private...)
}

// parseService says whether b is private data of this form.
func parseService(b []byte) (s service, ok bool) {
	if len(b) < serviceLen || binary.BigEndian.Uint32(b) != serviceMagic || b[4] != serviceVersion ||
		b[6]|b[7] != 0 {
		return s, false
	}
	s = service{status: b[5], number: binary.BigEndian.Uint32(b[8:]),
		qkey: binary.BigEndian.Uint32(b[12:]), private: b[serviceLen:]}
	return s, s.number>>24 == 0
}

// find asks the listener at the id's remote address, and tells later what it has answered.
func (e *Engine) find(id *cmID, c *call) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.binding == nil || !id.remote.IsValid() || id.listening != nil || id.over || id.asks {
		return syscall.EINVAL
	}
	id.asks = true
	ctx, cancel := awake.Timeout(context.Background(), connectWait, nil)
	id.stop = cancel
	s := service{number: uint32(c.arg[1]), private: c.data}
	addr := id.remote.String()
	param := rnic.ConnParam{PrivateData: s.put(), PeerToPeer: true, NoCRC: e.noCRC,
		LocalAddr: id.local, Binding: id.binding}
	go func() {
		defer cancel()
		s, err := e.ask(ctx, addr, param)
		ev := &ring.CMEvent{Type: cmUnreachable, Number: s.number, QKey: s.qkey,
			Status: int32(s.status)}
		ev.PrivateSize = uint16(copy(ev.Private[:], s.private))
		switch {
		case err != nil:
			e.tellLog("asking %v for a queue pair: %v", addr, err)
			if ev.Status = -int32(syscall.ETIMEDOUT); refusesService(err) {
				ev.Status = serviceUnsupported
			}
		case s.status == serviceFound:
			ev.Type = cmEstablished
			e.tellLog("datagrams for %v go to queue pair 0x%06x", addr, s.number)
		}
		id.tell(ev)
	}()
	return nil
}

// errNoService is what a listener for connections makes of it, or one of another kind.
var errNoService = errors.New("there is no listener for datagrams")

func refusesService(err error) bool {
	return errors.Is(err, errNoService) || errors.Is(err, stack.ErrRefused) ||
		errors.Is(err, stack.ErrReset)
}

// asking is what all queue pairs that ask have in common. They complete nothing.
type asking struct {
	once sync.Once
	pd   *rnic.ProtectionDomain
	cq   *rnic.CompletionQueue
}

// ask makes a queue pair that is rejected.
func (e *Engine) ask(ctx context.Context, addr string,
	param rnic.ConnParam) (s service, err error) {
	e.asking.once.Do(func() {
		e.asking.pd = e.adapter.AllocPD()
		e.asking.cq = e.adapter.CreateCQSink(func(rnic.Completion) {})
	})
	q, err := e.adapter.CreateQP(rnic.QPOptions{PD: e.asking.pd, SendCQ: e.asking.cq,
		RecvCQ: e.asking.cq, SendDepth: 1, RecvDepth: 1})
	if err != nil {
		return s, err
	}
	if err = q.StartConnect(ctx, addr, param); err == nil {
		err = q.StartupOver(ctx)
	}
	q.Abort()
	<-q.Done()
	var no *rnic.RejectedError
	switch {
	case err == nil:
		return s, errNoService // it has accepted a connection
	case errors.As(err, &no):
		if s, ok := parseService(no.PrivateData); ok {
			return s, nil
		}
		return s, errNoService
	}
	return s, err
}

// asksFor says whether the request is one that the listener is for, and takes the program's private
// data out of it. Another one is rejected.
func (e *Engine) asksFor(listener *cmID, r *rnic.ConnRequest) (private []byte, ok bool) {
	private = r.PrivateData()
	s, is := parseService(private)
	switch {
	case is == listener.datagrams && is:
		return s.private, true
	case is == listener.datagrams:
		return private, true
	}
	no := service{status: serviceUnsupported}
	go e.answer(r, no.put(), func() {})
	return nil, false
}

// answer rejects a request with private data, and calls over.
func (e *Engine) answer(r *rnic.ConnRequest, private []byte, over func()) {
	defer over()
	ctx, cancel := awake.Timeout(context.Background(), rejectWait, nil)
	defer cancel()
	if err := r.Reject(ctx, private); err != nil {
		e.tellLog("answering %v: %v", r.Remote(), err)
	}
}

// tellNumber answers a request with a number and a Q_Key, or a status. It does not wait.
func (e *Engine) tellNumber(id *cmID, s service) error {
	id.mu.Lock()
	r := id.request
	id.request = nil
	id.mu.Unlock()
	if r == nil {
		return syscall.EINVAL
	}
	go e.answer(r, s.put(), id.end)
	return nil
}
