package stack

import (
	"fmt"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// Datagram is one of UDP: Local and LocalPort are this end's, whichever way it goes.
type Datagram struct {
	Local, Remote         Addr
	LocalPort, RemotePort uint16
	TOS                   uint8  // or IPv6's traffic class
	Octets                []byte // that came: the Poller's, until DatagramReceiver.Datagram returns
}

// DatagramReceiver receives at a port of UDP. Poller goroutine. It must not block; it may send.
type DatagramReceiver interface {
	Datagram(d *Datagram)
	// Unreachable tells that nobody has the port, as an ICMP error says, of a datagram that was sent
	// from this one. Anybody on the way may forge it. d has no Octets.
	Unreachable(d *Datagram)
}

// ListenUDP has to receive what comes to a port of UDP at any address of ours. Poller goroutine.
// Nothing waits: what the receiver does not keep is gone. In a Group the port is this member's, to
// which the others hand its datagrams. Errors: ErrPortUsed, ErrStopped.
func (p *Poller) ListenUDP(port uint16, to DatagramReceiver) error {
	switch {
	case p.stopped || p.control.stopping.Load():
		return ErrStopped
	case p.rx.udpPorts[port] != nil || !p.member.ownUDP(port):
		return fmt.Errorf("stack: UDP port %d: %w", port, ErrPortUsed)
	}
	if p.rx.udpPorts == nil {
		p.rx.udpPorts = map[uint16]DatagramReceiver{}
	}
	p.rx.udpPorts[port] = to
	return nil
}

// CloseUDP undoes a ListenUDP. Poller goroutine.
func (p *Poller) CloseUDP(port uint16) {
	if p.rx.udpPorts[port] != nil {
		delete(p.rx.udpPorts, port)
		p.member.disownUDP(port)
	}
}

// udp finds the receiver of a datagram; with none, found is foundNothing and drop says why:
// DropProto, that there is no such port.
func (r *receiver) udp(b mem.Buf, remote, local *inet.Addr, tos uint8, octets []byte,
	good bool) (f found, drop inet.Drop) {
	if len(octets) < inet.UDPLen {
		return foundNothing, inet.DropProto
	}
	if r.udpTo = r.udpPorts[inet.UDPPort(octets)]; r.udpTo == nil {
		if r.member.crossDatagram(b, inet.UDPPort(octets)) {
			return foundNothing, inet.DropNone
		}
		return foundNothing, inet.DropProto
	}
	h, payload, drop := inet.ParseUDP(octets, remote, local, good)
	if drop != inet.DropNone {
		return foundNothing, drop
	}
	r.datagram = Datagram{Local: *local, Remote: *remote, LocalPort: h.DstPort,
		RemotePort: h.SrcPort, TOS: tos, Octets: payload}
	r.buf = b
	return foundDatagram, inet.DropNone
}
