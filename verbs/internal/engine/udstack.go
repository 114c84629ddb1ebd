package engine

import (
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// udStack is the port over our own stack: on its first Poller, whose goroutine looks at doorbells
// if it is the only one (udTurn). What is for an address of ours does not leave the process.
type udStack struct {
	port    *udPort
	poller  *stack.Poller
	room    [udRoom]byte
	parts   [1][]byte
	own     [udBatch]udOwn // of the batch in hand
	owns    int
	grouped bool   // groupPort is listened to
	seen    uint32 // Poller.Resolved, in the Turn before
}

// udOwn is a datagram to ourselves.
type udOwn struct {
	udIn
	room [udRoom]byte
}

// newUDStack has p over the Poller.
func newUDStack(p *udPort, poller *stack.Poller) (err error) {
	s := &udStack{port: p, poller: poller}
	p.engine.whenUDQuiet(func() {
		p.carrier = s
		p.engine.udStack = s
		err = poller.ListenUDP(slotPort+uint16(p.index), s)
	})
	return err
}

// carry implements udCarrier.
func (s *udStack) carry(out []udOut) (n int, why udStop) {
	for ; n < len(out); n++ {
		o := &out[n]
		own := s.poller.IsLocal((*stack.Addr)(&o.destination))
		group := o.port == groupPort && s.port.groups[o.destination] != nil
		room := s.room[:]
		if own || group {
			room = s.own[s.owns].room[:]
		}
		octets, ok := s.join(room, o)
		if !ok {
			return n, udFault
		}
		if own {
			s.keep(octets, o)
			continue
		}
		d := stack.Datagram{Local: stack.Addr(o.source), Remote: stack.Addr(o.destination),
			LocalPort: slotPort + uint16(s.port.index), RemotePort: o.port, TOS: o.class}
		s.parts[0] = octets
		switch s.poller.SendUDP(&d, s.parts[:]) {
		case stack.SentOut:
			if group { // what we send there comes to us, too, as over the kernel's sockets
				s.keep(octets, o)
			}
		case stack.SentBusy:
			return n, udBusy
		case stack.SentUnresolved:
			return n, udUnresolved
		case stack.SentNever:
			s.port.drop(ring.DropUnsent)
		}
	}
	return n, udSent
}

// keep has a datagram, whose octets are in the room for it, delivered to ourselves.
func (s *udStack) keep(octets []byte, o *udOut) {
	s.own[s.owns].udIn = udIn{octets: octets, source: o.source, destination: o.destination,
		class: o.class, port: slotPort + uint16(s.port.index)}
	s.owns++
}

// turn is called in each Turn.
func (s *udStack) turn() {
	if now := s.poller.Resolved(); now != s.seen {
		s.seen = now
		s.port.waiting.goOn()
	}
}

// join copies a datagram to room. False: the program's memory is not there any more.
func (s *udStack) join(room []byte, o *udOut) (octets []byte, ok bool) {
	n := copy(room, o.header[:])
	for _, b := range o.parts {
		if !s.port.memory.Copy(room[n:], b) {
			return nil, false
		}
		n += len(b)
	}
	return room[:n], true
}

// settle implements udCarrier.
func (s *udStack) settle() {
	n := s.owns
	s.owns = 0
	for i := range s.own[:n] {
		s.port.receive(&s.own[i].udIn)
	}
}

// Unreachable implements stack.DatagramReceiver: what is not received is lost.
func (*udStack) Unreachable(*stack.Datagram) {}

// Datagram implements stack.DatagramReceiver.
func (s *udStack) Datagram(d *stack.Datagram) {
	s.port.receive(&udIn{octets: d.Octets, source: gid(d.Remote), destination: gid(d.Local),
		class: d.TOS, port: d.RemotePort})
}
