package rsocket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/rnicd/rnicd/rnic"
)

// Memory that the other end may write directly, at offsets that an end gives it: riomap and
// riowrite of librdmacm. An end that maps memory tells the other by an RDMA Write of an entry, and
// a message that it has come; what is written then goes by RDMA alone, and the peer is not told.
//
//	A                                                B
//	 | == RDMA Write of {offset, memory} ===========> |  Map, into one of B's Options.Maps entries
//	 | -- Send {iomap, which entry} ----------------> |
//	 | <= RDMA Write of octets, into A's memory ===== |  WriteAt

// MapsMax bounds Options.Maps.
const MapsMax = 128

// mapLen is the length of an entry: rs_iomap of rdma-core.
const mapLen = 8 + entryLen

// iomap is memory of one end at an offset.
type iomap struct {
	offset uint64
	entry
}

func (m iomap) put(b []byte, order binary.ByteOrder) {
	order.PutUint64(b, m.offset)
	m.entry.put(b[8:], order)
}

func parseMap(b []byte, order binary.ByteOrder) iomap {
	return iomap{order.Uint64(b), parseEntry(b[8:], order)}
}

// scaled is how many entries there are as start-up says it: an octet, of which up to 128 is itself.
func scaled(v byte) int {
	if v <= 1<<7 {
		return int(v)
	}
	return int(v&^(1<<7)) << 8
}

// ErrMapped is WriteAt's error where the peer has no memory mapped.
var ErrMapped = errors.New("rsocket: the peer has mapped no memory there")

// maps are the ranges that either end has mapped. Guarded by Conn.mu.
type maps struct {
	theirs []iomap    // by entry; length 0: none
	ours   []*Mapping // by entry of the peer's
	to     entry      // the peer's entries; length counts them
	// of each message under way that tells of one: the messages of data sent before it
	flight []uint16
	most   int // how many of these there may be
}

// Mapping is memory that the peer may write at offsets from Offset on.
type Mapping struct {
	Offset uint64

	conn   *Conn
	region *rnic.MemoryRegion
	index  int
}

// Map lets the peer write b by WriteAt (riowrite), at offsets from offset on, until Close of the
// Mapping or the end of the connection. It must not be on the Go heap if it is looked at while the
// peer may write, except where the two have agreed on whose it is by octets that were read. A peer
// has as many entries as it says at start-up: ErrMapsFull when all are used. Map may block until
// what was written before has been posted; octets that are written later, by Write, reach the
// peer's Read after the mapping. Of a peer that reads nothing in between it may block, too, when
// half of its credits are used up.
func (c *Conn) Map(b []byte, offset uint64) (*Mapping, error) {
	if len(b) == 0 || len(b) > math.MaxUint32 || offset > math.MaxUint64-uint64(len(b)) {
		return nil, fmt.Errorf("rsocket: %d octets to be mapped at %d: want 1 to %d", len(b), offset,
			uint32(math.MaxUint32))
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &Mapping{Offset: offset, conn: c, index: -1}
	for i, other := range c.maps.ours {
		if other == nil {
			m.index = i
			break
		}
	}
	if m.index < 0 {
		return nil, ErrMapsFull
	}
	if err := c.awaitRoom(func() bool { return c.mayTell() }); err != nil {
		return nil, c.opError("map", err)
	}
	var err error
	m.region, err = c.pd.RegisterWith(
		b, rnic.RegisterOptions{Access: rnic.LocalWrite | rnic.RemoteWrite, For: c.qp})
	if err != nil {
		return nil, c.opError("map", err)
	}
	c.maps.ours[m.index] = m
	c.tell(m, uint32(len(b)))
	return m, nil
}

// ErrMapsFull is Map's error when the peer has no entry left.
var ErrMapsFull = errors.New("rsocket: the peer has no room for another mapping")

// mayTell: a message that tells of a mapping takes a receive buffer at the peer, as one of data
// does, but rsockets does not count it when it tells what was read. So it is one of those that are
// under way until the peer says that a later message of data was read. It says so when it has read
// half of those that were granted: these messages leave room for so many.
func (c *Conn) mayTell() bool {
	return c.out.slots >= slotsForTransfer && c.out.creditLeft(&c.maps) > 0 &&
		len(c.maps.flight) < c.maps.most
}

// begin takes what start-up says of the peer's entries.
func (m *maps) begin(d *connData) {
	n := min(scaled(d.maps), MapsMax)
	m.to = entry{d.list.to + uint64(d.list.length)*entryLen, d.list.stag, uint32(n)}
	m.ours = make([]*Mapping, n)
	m.most = max(int(d.credits)/2-reserved(d.credits), 1)
}

// landed forgets the messages that the peer has seen, when it says that it has read so many of
// data.
func (m *maps) landed(read uint16) {
	n := 0
	for n < len(m.flight) && int16(read-m.flight[n]) > 0 {
		n++
	}
	m.flight = append(m.flight[:0], m.flight[n:]...)
}

// tell writes m's entry and the message about it.
func (c *Conn) tell(m *Mapping, n uint32) {
	b := c.inline[:mapLen+messageLen]
	iomap{m.Offset, entry{m.region.Base(), m.region.STag(), n}}.put(b, c.order)
	c.order.PutUint32(b[mapLen:], message(kindIomap, uint32(m.index)))
	c.post([]rnic.WorkRequest{
		{Op: rnic.OpWrite, Inline: b[:mapLen], RemoteSTag: c.maps.to.stag,
			RemoteOffset: c.maps.to.to + uint64(m.index)*mapLen},
		{ID: 2, Op: rnic.OpSend, Inline: b[mapLen:], Signaled: true},
	})
	c.maps.flight = append(c.maps.flight, c.out.sent)
}

// Close takes the memory back: nothing is written there any more when it returns. The peer is not
// told, so that it must have been by other means: a WriteAt of its own ends the connection.
func (m *Mapping) Close() error {
	c := m.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.region != nil {
		m.region.Deregister()
		m.region = nil
		c.maps.ours[m.index] = nil
	}
	return nil
}

// mapped takes a message of the peer's that it has written an entry.
func (c *Conn) mapped(index uint32) {
	if index &= math.MaxUint16; int(index) >= len(c.maps.theirs) {
		c.fail(fmt.Errorf("rsocket: the peer maps memory as entry %d, where it has %d", index,
			len(c.maps.theirs)))
		return
	}
	at := listLen*entryLen + int(index)*mapLen
	c.in.maps++
	c.maps.theirs[index] = parseMap(c.m.list.Bytes()[at:], c.order)
	c.changed.Broadcast()
}

// find is what the peer has mapped at an offset: where it goes, and how many octets from there.
func (m *maps) find(offset uint64) (where entry, ok bool) {
	for _, x := range m.theirs {
		if at := offset - x.offset; offset >= x.offset && at < uint64(x.length) {
			return entry{x.to + at, x.stag, x.length - uint32(at)}, true
		}
	}
	return entry{}, false
}

// Mapped is how many octets from off on are in one of the peer's mappings (Map, riomap); 0: none
// has that offset. A mapping of which the peer tells before it writes octets is counted when they
// have been read.
func (c *Conn) Mapped(off int64) int {
	if off < 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	where, _ := c.maps.find(uint64(off))
	return int(where.length)
}

// WriteAt writes p by RDMA into memory that the peer has mapped (Map, riomap), from offset off on,
// and returns when p is the caller's again. It is io.WriterAt. The peer's program is told nothing;
// what is written by Write afterwards, it reads when these octets are there. The error is ErrMapped
// where the peer has mapped nothing: n octets before that were written.
func (c *Conn) WriteAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("rsocket: offset %d is negative", off)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for n < len(p) {
		c.progress()
		where, ok := c.maps.find(uint64(off) + uint64(n))
		if !ok {
			return n, c.opError("write", ErrMapped)
		}
		if err := c.awaitRoom(func() bool {
			return c.out.slots >= slotsForTransfer && c.out.free > 0
		}); err != nil {
			return n, c.opError("write", err)
		}
		n += c.place(p[n:], where)
	}
	return n, nil
}

// place copies the beginning of p and has it written to where. It returns how many octets.
func (c *Conn) place(p []byte, where entry) int {
	s := &c.out
	outbox := c.m.outbox.Bytes()
	n := min(len(p), s.free, len(outbox)-s.at, int(min(where.length, transferMax)))
	copy(outbox[s.at:], p[:n])
	ok := c.post([]rnic.WorkRequest{{
		ID: uint64(n)<<idShift | 1, Op: rnic.OpWrite, Local: c.m.outbox.Slice(s.at, n), Signaled: true,
		RemoteSTag: where.stag, RemoteOffset: where.to,
	}})
	if !ok {
		return 0
	}
	s.free -= n
	s.at = (s.at + n) % len(outbox)
	return n
}

// awaitRoom waits until there is room, or nothing more may be written. c.mu is held.
func (c *Conn) awaitRoom(room func() bool) error {
	for {
		if err := c.mayWrite(); err != nil {
			return err
		}
		c.progress()
		if err := c.mayWrite(); err != nil {
			return err
		}
		if room() {
			return nil
		}
		c.changed.Wait()
	}
}
