package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// Ids of RDMA_PS_UDP make no connection. What InfiniBand does with service id resolution (IBTA,
// section 12.11) is done by datagrams between their ports (docs/adr/0048-datagrams.md), of 40
// octets and the program's private data, in network order:
//
//	 0  magic            4
//	 4  version          1
//	 5  kind             1   serviceAsk, serviceProve, serviceAnswer
//	 6  status           1   of an answer: enum ib_cm_sidr_status
//	 7  0                1
//	 8  transaction      8   drawn by who asks
//	16  cookie          16   of serviceProve, and of an ask that has been told to bring it
//	32  number           4
//	36  Q_Key            4
//	40  the program's private data
type service struct {
	kind, status uint8
	transaction  uint64
	cookie       [16]byte
	number, qkey uint32
	private      []byte
}

const (
	serviceMagic   = 0x726e7371
	serviceVersion = 2
	serviceLen     = 40
	serviceMax     = serviceLen + ring.PrivateMax

	serviceAsk    = 0
	serviceProve  = 1 // ask again, with this cookie: so you are where you say
	serviceAnswer = 2

	serviceFound       = 0
	serviceUnsupported = 1 // nobody listens there
	serviceRejected    = 2
)

func (s *service) put() []byte {
	b := make([]byte, serviceLen, serviceLen+len(s.private))
	binary.BigEndian.PutUint32(b, serviceMagic)
	b[4], b[5], b[6] = serviceVersion, s.kind, s.status
	binary.BigEndian.PutUint64(b[8:], s.transaction)
	copy(b[16:], s.cookie[:])
	binary.BigEndian.PutUint32(b[32:], s.number)
	binary.BigEndian.PutUint32(b[36:], s.qkey)
	return append(b, s.private...)
}

// parseService says whether b is of this form.
func parseService(b []byte) (s service, ok bool) {
	if len(b) < serviceLen || len(b) > serviceMax || binary.BigEndian.Uint32(b) != serviceMagic ||
		b[4] != serviceVersion || b[5] > serviceAnswer || b[5] != serviceAnswer && b[6] != 0 ||
		b[7] != 0 {
		return s, false
	}
	s = service{kind: b[5], status: b[6], transaction: binary.BigEndian.Uint64(b[8:]),
		cookie: [16]byte(b[16:]), number: binary.BigEndian.Uint32(b[32:]),
		qkey: binary.BigEndian.Uint32(b[36:]), private: b[serviceLen:]}
	return s, s.number>>24 == 0
}

// find asks the listener at the id's remote address, and tells later what it has answered.
func (e *Engine) find(id *cmID, c *call) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.service == nil || !id.remote.IsValid() || id.listening != nil || id.over || id.asks {
		return syscall.EINVAL
	}
	if !id.service.usable() {
		return syscall.EADDRINUSE
	}
	id.asks = true
	ctx, cancel := awake.Timeout(context.Background(), connectWait, nil)
	id.stop = cancel
	s := service{number: uint32(c.arg[1]), private: append([]byte(nil), c.data...)}
	p, local, remote := id.service, id.local, id.remote
	go func() {
		defer cancel()
		s, err := p.ask(ctx, local, remote, s)
		ev := &ring.CMEvent{Type: cmUnreachable, Number: s.number, QKey: s.qkey,
			Status: int32(s.status)}
		ev.PrivateSize = uint16(copy(ev.Private[:], s.private))
		switch {
		case err != nil:
			e.tellLog("asking %v for a queue pair: %v", remote, err)
			if ev.Status = -int32(syscall.ETIMEDOUT); errors.Is(err, errNoService) {
				ev.Status = serviceUnsupported
			}
		case s.status == serviceFound:
			ev.Type = cmEstablished
			e.tellLog("datagrams for %v go to queue pair 0x%06x", remote, s.number)
		}
		id.tell(ev)
	}()
	return nil
}

// serveService makes an id of each question, and tells of it, until ctx ends.
func (e *Engine) serveService(ctx context.Context, listener *cmID) {
	defer close(listener.listening)
	p := listener.service
	defer p.unlisten()
	near := listener.local.Addr()
	for {
		select {
		case listener.room <- struct{}{}: // a program that takes none is not told of more
		case <-ctx.Done():
			return
		}
		var q *question
		select {
		case q = <-p.asked:
		case <-ctx.Done():
			return
		}
		id := &cmID{question: q, from: listener, datagrams: true, end: func() {}}
		id.local, id.remote = e.zoned(q.local, near), e.zoned(q.from, near)
		ev := &ring.CMEvent{Type: cmConnectRequest, Request: e.objects.add(id),
			ResponderResources: readDepthMax, InitiatorDepth: readDepthMax}
		ev.PrivateSize = uint16(copy(ev.Private[:], q.private))
		listener.tellOf(ev, id)
	}
}

// rejectTold answers what the program of a listener was told of and has not taken. The listener
// does nothing any more.
func (id *cmID) rejectTold(objects *handles) {
	id.mu.Lock()
	told := id.told
	id.told = nil
	id.mu.Unlock()
	for handle, r := range told {
		_ = objects.drop(handle) // it is there: the program has not been given the handle
		_ = r.tellNumber(service{status: serviceRejected})
	}
}

// tellNumber answers a question with a number and a Q_Key, or a status.
func (id *cmID) tellNumber(s service) error {
	id.mu.Lock()
	q := id.question
	id.question = nil
	id.mu.Unlock()
	if q == nil {
		return syscall.EINVAL
	}
	s.private = append([]byte(nil), s.private...)
	q.answer(s)
	return nil
}

// openService takes a port of RDMA_PS_UDP for an id that is locked.
func (e *Engine) openService(id *cmID, at netip.AddrPort, opt rnic.BindOptions) (err error) {
	if id.service, err = e.newServicePort(at, opt); err != nil {
		return err
	}
	id.local = e.zoned(id.service.at, at.Addr())
	return nil
}
