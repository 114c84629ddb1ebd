package rsocket

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rnicd/rnicd/rnic"
)

const (
	version     = 1
	connDataLen = 40
	entryLen    = 16
	messageLen  = 4
	// listLen is how many halves of a ring may be granted at a time.
	listLen = 2
)

// Flags of connData.
const (
	flagBigEndian = 1 << 0 // the byte order of this end's host, which its messages and entries have
	flagIomap     = 1 << 1 // the octet before the entries counts iomap entries
)

// entry is a range of one end's memory that the other may write: rs_sge of rdma-core.
type entry struct {
	to     uint64
	stag   rnic.STag
	length uint32
}

func (e entry) put(b []byte, order binary.ByteOrder) {
	order.PutUint64(b, e.to)
	order.PutUint32(b[8:], uint32(e.stag))
	order.PutUint32(b[12:], e.length)
}

func parseEntry(b []byte, order binary.ByteOrder) entry {
	return entry{order.Uint64(b), rnic.STag(order.Uint32(b[8:])), order.Uint32(b[12:])}
}

// connData is the private data of a Request and of its Reply: rs_conn_data, in network order.
type connData struct {
	bigEndian bool
	credits   uint16 // messages of data that may be under way to this end
	maps      byte   // entries after the list, for memory that is mapped (scaled)
	list      entry  // where this end wants to be told of memory; length counts entries
	ring      entry  // the first half of its ring
}

func (d *connData) marshal() []byte {
	b := make([]byte, connDataLen)
	b[0], b[1], b[7] = version, flagIomap, d.maps
	if d.bigEndian {
		b[1] |= flagBigEndian
	}
	binary.BigEndian.PutUint16(b[2:], d.credits)
	d.list.put(b[8:], binary.BigEndian)
	d.ring.put(b[24:], binary.BigEndian)
	return b
}

var errNoRsockets = errors.New("its private data is not that of rsockets")

func parseConnData(b []byte) (d connData, err error) {
	if len(b) < connDataLen {
		return d, fmt.Errorf("%w: %d octets, where %d were due", errNoRsockets, len(b), connDataLen)
	}
	if b[0] != version {
		return d, fmt.Errorf("%w of version %d: it begins with %d", errNoRsockets, version, b[0])
	}
	d.bigEndian = b[1]&flagBigEndian != 0
	if b[1]&flagIomap != 0 {
		d.maps = b[7]
	}
	d.credits = binary.BigEndian.Uint16(b[2:])
	d.list, d.ring = parseEntry(b[8:], binary.BigEndian), parseEntry(b[24:], binary.BigEndian)
	if d.credits == 0 || d.credits > creditsLimit || d.list.length < listLen ||
		d.list.length > listLenMax || d.ring.length == 0 {
		return d, fmt.Errorf("%w: %d credits, %d entries, a ring of 2 times %d octets", errNoRsockets,
			d.credits, d.list.length, d.ring.length)
	}
	return d, nil
}

const (
	// creditsLimit: counters of messages are of 16 bits, and compared by their difference.
	creditsLimit = 1<<15 - 1
	// listLenMax is far above the 2 of every rsockets there is.
	listLenMax = 1 << 10
)

// kind is the upper three bits of a message; the rest is its value.
type kind uint32

const (
	kindData kind = 0 // octets were written; how many
	// messages that may be sent, counted from the first of the connection; an entry may have been
	// written before
	kindGrant   kind = 4
	kindIomap   kind = 6 // an entry of mapped memory was written; which
	kindControl kind = 7
)

// Values of kindControl.
const (
	disconnect = 0 // nothing more will be sent, and nothing received
	keepAlive  = 1
	shutdown   = 2 // nothing more will be sent
)

const (
	kindShift = 29
	valueMax  = 1<<kindShift - 1
)

func message(k kind, value uint32) uint32          { return uint32(k)<<kindShift | value }
func parseMessage(m uint32) (k kind, value uint32) { return kind(m >> kindShift), m & valueMax }
