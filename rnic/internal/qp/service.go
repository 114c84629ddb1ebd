package qp

import (
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
)

// service is what an engine has from Start to Finish, and only its driver touches. Engines of one
// goroutine have the same ones, one after the other: what the last one leaves is still in the
// cache, and nothing has to be allocated, cleared and collected for each connection.
type service struct {
	send      sendHalf
	recv      recvHalf
	respond   responder
	requester requester
	ack       acknowledging
	room      *mpa.Room // of recv.rx; nil: its own
}

// service is one for an engine that goes into service: zero, except for room to work in.
func (s *Shared) service() *service {
	n := len(s.services) - 1
	if n < 0 {
		s.totals.ServicesMade++
		return &service{room: mpa.NewRoom(s.bufsMax)}
	}
	v := s.services[n]
	s.services = s.services[:n]
	return v
}

// giveService takes that of an engine that is over. It keeps nothing of the connection: no pointer
// into memory that its owner may unmap.
func (s *Shared) giveService(v *service) {
	if len(s.services) == servicesKept {
		return
	}
	room, wr := v.room, wq.Request{List: v.send.wr.List, Data: v.send.wr.Data}
	recvs := v.recv.sendQ.Memory(recvsKept, SharedSGEMax)
	*v = service{}
	v.room, v.send.wr, v.recv.sendQ = room, wr, recvs
	s.services = append(s.services, v)
}
