package rsocket

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/rnic"
)

// sender is what goes. Guarded by Conn.mu.
type sender struct {
	slots    int    // requests that may be posted
	lost     bool   // octets were not sent
	free     int    // octets of the outbox
	at       int    // offset there of the next octet
	sent     uint16 // messages of data, since the beginning
	credit   uint16 // how many there may be
	reserve  uint16 // how many of those are forgone
	targets  [listLen]entry
	granted  int             // how many of targets are left
	expected int             // where in our list the peer writes next
	total    uint16          // messages that there may be beyond those that were read
	fills    [listLen]uint16 // sent, when a half was full that has not been granted again
	filled   int             // how many of fills there are
	due      int             // halves that were read and whose entries did not come yet
}

const (
	// slotsMax bounds the requests that are under way.
	slotsMax = 256
	// A transfer leaves room for a grant, and a grant for goodbyes.
	slotsForGrant    = 2 + 2
	slotsForTransfer = 2 + slotsForGrant
	// transferMax bounds one transfer, so that the peer has something to do while the next is
	// copied.
	transferMax = 32 << 10
)

func (s *sender) init(opt *Options) {
	s.slots, s.free = slotsMax, opt.SendBuffer
}

// begin takes what start-up has granted.
func (s *sender) begin(d *connData) {
	s.credit, s.total = d.credits, d.credits
	s.reserve = uint16(reserved(d.credits))
	s.targets[0], s.granted = d.ring, 1
	s.expected, s.due = 1, 1
}

// reserved is how many messages of data a sender forgoes, of those that are granted: the peer may
// have no more receive buffers than that, and grants take some of them, too.
func reserved(credits uint16) int { return min(int(credits)/4, 4) }

// take takes a grant. The peer has written an entry before when half a ring was free, and then only
// it may be looked at, for the next one may just be coming. Which of our messages were read the
// grant tells, and no message is in two halves: so that is known.
func (s *sender) take(credit uint16, list []byte, order binary.ByteOrder) {
	s.credit = credit
	if s.filled > 0 && int16(credit-s.total-s.fills[0]) >= 0 {
		s.fills[0] = s.fills[1]
		s.filled--
		s.due++
	}
	if s.due == 0 || s.granted == listLen {
		return
	}
	b := list[s.expected*entryLen:][:entryLen]
	e := parseEntry(b, order)
	if e.length == 0 {
		// a peer of several threads may count a message as read before its octets: the entry comes with
		// its next grant
		return
	}
	clear(b)
	s.due--
	s.targets[s.granted] = e
	s.granted++
	s.expected = (s.expected + 1) % listLen
}

// creditLeft is how many messages may be sent now.
func (s *sender) creditLeft(m *maps) int {
	return int(int16(s.credit-s.reserve-s.sent)) - len(m.flight)
}

// transfer copies the beginning of p, has it written, and tells the peer. It returns how many
// octets; 0: not now.
func (c *Conn) transfer(p []byte) int {
	s := &c.out
	if s.slots < slotsForTransfer || s.granted == 0 || s.creditLeft(&c.maps) <= 0 {
		return 0
	}
	outbox := c.m.outbox.Bytes()
	target := &s.targets[0]
	n := min(len(p), s.free, len(outbox)-s.at, int(target.length), transferMax)
	if n == 0 {
		return 0
	}
	copy(outbox[s.at:], p[:n])
	b := c.inline[:messageLen]
	c.order.PutUint32(b, message(kindData, uint32(n)))
	wrs := [2]rnic.WorkRequest{
		{Op: rnic.OpWrite, Local: c.m.outbox.Slice(s.at, n), RemoteSTag: target.stag,
			RemoteOffset: target.to},
		{ID: uint64(n)<<idShift | 2, Op: rnic.OpSend, Inline: b, Signaled: true},
	}
	if !c.post(wrs[:]) {
		return 0
	}
	s.free -= n
	s.at = (s.at + n) % len(outbox)
	s.sent++
	target.to += uint64(n)
	if target.length -= uint32(n); target.length == 0 {
		s.fills[s.filled] = s.sent
		s.filled++
		s.targets[0] = s.targets[1]
		s.granted--
	}
	return n
}

// An ID says what its completion gives back: slots, and octets above them.
const (
	idShift = 8
	idSlots = 1<<idShift - 1
)

// completeSend takes a completion of the send queue.
func (c *Conn) completeSend(wc *rnic.Completion) {
	if wc.Status != rnic.Success {
		c.out.lost = c.out.lost || wc.ID>>idShift > 0
		return
	}
	c.out.slots += int(wc.ID & idSlots)
	c.out.free += int(wc.ID >> idShift)
}
