package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// pathState is what a connection knows of the sizes its path carries, in octets of IP packet (RFC
// 5927 section 7.2: its nsegrto, maxsizeacked and maxsizesent, kept per connection).
type pathState struct {
	confirmed uint32 // when the neighbour table was last told, in milliseconds: only differences count
	seen      uint32 // of Host.PathsChanged
	mtu       uint16 // what we send at most
	sent      uint16 // largest packet sent
	acked     uint16 // largest that was acknowledged
	pending   uint16 // a path MTU below acked that waits for a timeout; 0: none
	fixed     uint8  // IP and TCP headers without options
	header    uint8  // of the last segment with octets, options included
	stalled   bool   // a timeout, and nothing acknowledged since
}

// paths keeps what connections send within what their paths carry: it reads and lowers path MTUs of
// the Host, and tells the neighbour table which next hops are alive.
type paths struct {
	host       *iphost.Host
	neighbours *inet.Neighbours[mem.Buf]
	active     *active
	counters   *Counters
}

// begin sets the sizes of a connection to remote that is about to be started: the MSS is that
// of the link (RFC 9293 MUST-67, RFC 8200 section 8.3), what is sent that of the path.
func (s *paths) begin(c *Conn, remote *inet.Addr) {
	fixed := iphost.IPLen(remote) + tcpHeaderLen
	c.path = pathState{mtu: uint16(s.host.MTUTo(*remote)), fixed: uint8(fixed), header: uint8(fixed),
		seen: s.host.PathsChanged()}
	c.tcp.SetMSS(linkMSS(s.host, remote))
}

// limit applies what is known of the path to a connection that was just started.
func (s *paths) limit(c *Conn) {
	if mtu := int(c.path.mtu); mtu < s.host.LinkMTU(&c.tcp.ID().Remote) {
		c.tcp.SetEMSSLimit(mtu - int(c.path.fixed))
	}
}

// tooBig takes a report about a segment of c that is in flight (RFC 1191 section 3, RFC 8201
// section 4). One that is not below what was sent tells nothing. One below what has been
// acknowledged contradicts the path's own evidence and waits until the segment has timed out (RFC
// 5927 section 7.2): on a connection that flows it does nothing.
func (s *paths) tooBig(now int64, c *Conn, e *inet.ICMPError) {
	mtu := e.Believed()
	s.follow(c)
	path := &c.path
	switch {
	case mtu == 0, mtu >= int(path.mtu), mtu >= int(path.sent):
		s.counters.ICMPIgnored++
	case mtu < int(path.acked) && !path.stalled:
		s.counters.ICMPIgnored++
		path.pending = uint16(mtu)
	default:
		s.lower(now, c, mtu)
	}
}

// timedOut is called when the retransmission timer of c has fired: a report may have waited for it.
func (s *paths) timedOut(now int64, c *Conn) {
	c.path.stalled = true
	if c.path.pending != 0 {
		s.lower(now, c, int(c.path.pending))
	}
}

// progressed is called when new octets of c were acknowledged: the path carries what was sent, and
// the next hop is alive (RFC 4861 section 7.3.1), which the neighbour table is told once a second
// at most.
func (s *paths) progressed(now int64, c *Conn) {
	c.path.stalled, c.path.pending = false, 0
	if at := uint32(now / 1_000_000); at-c.path.confirmed >= 1000 {
		c.path.confirmed = at
		s.neighbours.Confirm(now, c.nextHop)
	}
}

// lower takes a path MTU for all connections to c's destination. The others learn of it when
// they are next served: a report costs the same however many there are, as anybody may send some
// about a connection of his own.
func (s *paths) lower(now int64, c *Conn, mtu int) {
	c.path.pending = 0
	s.counters.PathMTU++
	s.host.LowerPath(now, c.tcp.ID().Remote, mtu)
	s.follow(c)
	s.active.add(c)
}

// follow gives c the MTU of its path, if the MTU of any path has changed since c last looked.
// So a change costs the same however many connections there are.
func (s *paths) follow(c *Conn) {
	if c.path.seen == s.host.PathsChanged() {
		return
	}
	c.path.seen = s.host.PathsChanged()
	if mtu := s.host.MTUTo(c.tcp.ID().Remote); mtu != int(c.path.mtu) {
		c.setPath(mtu)
	}
}

func (c *Conn) setPath(mtu int) {
	s, n := &c.path, uint16(mtu)
	s.mtu, s.acked, s.sent = n, min(s.acked, n), min(s.sent, n)
	c.tcp.SetEMSSLimit(mtu - int(s.fixed))
}

// left takes note of a segment with octets that was sent.
func (s *pathState) left(t *tcp.Transmit) {
	s.header = s.fixed - tcpHeaderLen + uint8(t.HeaderLen())
	s.sent = max(s.sent, uint16(int(s.header)+t.Len))
}

// arrived takes note that a segment with n octets was acknowledged.
func (s *pathState) arrived(n int) {
	s.acked = max(s.acked, uint16(min(n+int(s.header), int(s.mtu))))
}

// linkMSS is what is announced to dst.
func linkMSS(h *iphost.Host, dst *inet.Addr) int {
	return h.LinkMTU(dst) - iphost.IPLen(dst) - tcpHeaderLen
}
