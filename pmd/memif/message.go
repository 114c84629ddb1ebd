package memif

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// The messages of version 2.0. Each is one packet of msgLen octets on a SOCK_SEQPACKET socket,
// packed, in the byte order of the host; the two ends share it.
//
//	server                     client
//	HELLO             ─────►
//	                  ◄─────   INIT            interface, secret
//	ACK               ─────►
//	                  ◄─────   ADD_REGION      a file descriptor of memory; several, each followed by ACK
//	                  ◄─────   ADD_RING        an eventfd; one for each ring, each followed by ACK
//	                  ◄─────   CONNECT
//	CONNECTED         ─────►
//	DISCONNECT        ◄────►                   at any time, with a reason
const (
	msgLen  = 128
	version = 2 << 8 // 2.0: major, minor

	nameLen   = 32
	secretLen = 24
	reasonLen = 96

	modeEthernet = 0
	ringC2S      = 1 // flag of ADD_RING: from client to server
)

type msgType uint16

const (
	msgNone msgType = iota
	msgACK
	msgHello
	msgInit
	msgAddRegion
	msgAddRing
	msgConnect
	msgConnected
	msgDisconnect
)

var msgNames = [...]string{"NONE", "ACK", "HELLO", "INIT", "ADD_REGION", "ADD_RING", "CONNECT",
	"CONNECTED", "DISCONNECT"}

func (t msgType) String() string {
	if int(t) < len(msgNames) {
		return msgNames[t]
	}
	return fmt.Sprintf("message %d", uint16(t))
}

// message is one of them as it is sent. What a type leaves over is zero.
type message [msgLen]byte

func (m *message) typ() msgType        { return msgType(native.Uint16(m[:])) }
func (m *message) setType(t msgType)   { native.PutUint16(m[:], uint16(t)) }
func (m *message) u16(at int) uint16   { return native.Uint16(m[at:]) }
func (m *message) put16(at int, v int) { native.PutUint16(m[at:], uint16(v)) }

var native = binary.NativeEndian

// text is a string that ends at its first zero, or fills its field.
func (m *message) text(at, size int) string {
	field := m[at : at+size]
	if end := bytes.IndexByte(field, 0); end >= 0 {
		field = field[:end]
	}
	return string(field)
}

// putText cuts s so that a zero follows: some peers want one.
func (m *message) putText(at, size int, s string) { copy(m[at:at+size-1], s) }

func newMessage(t msgType) *message {
	m := new(message)
	m.setType(t)
	return m
}

// hello is what a server can do. The fields for regions and rings are highest indices.
type hello struct {
	name                   string
	minVersion, maxVersion uint16
	maxRegion              int
	maxS2C, maxC2S         int
	maxLog2                uint8
}

func (h *hello) message() *message {
	m := newMessage(msgHello)
	m.putText(2, nameLen, h.name)
	m.put16(34, int(h.minVersion))
	m.put16(36, int(h.maxVersion))
	m.put16(38, h.maxRegion)
	m.put16(40, h.maxS2C)
	m.put16(42, h.maxC2S)
	m[44] = h.maxLog2
	return m
}

func (m *message) hello() hello {
	return hello{
		name: m.text(2, nameLen), minVersion: m.u16(34), maxVersion: m.u16(36), maxRegion: int(m.u16(38)),
		maxS2C: int(m.u16(40)), maxC2S: int(m.u16(42)), maxLog2: m[44],
	}
}

// initiate says which interface a client wants.
type initiate struct {
	version uint16
	id      uint32
	mode    uint8
	secret  [secretLen]byte // zeros after its end
	name    string
}

func (i *initiate) message() *message {
	m := newMessage(msgInit)
	m.put16(2, int(i.version))
	native.PutUint32(m[4:], i.id)
	m[8] = i.mode
	copy(m[9:], i.secret[:])
	m.putText(33, nameLen, i.name)
	return m
}

func (m *message) initiate() initiate {
	i := initiate{version: m.u16(2), id: native.Uint32(m[4:]), mode: m[8], name: m.text(33, nameLen)}
	copy(i.secret[:], m.text(9, secretLen))
	return i
}

// secretOf is s as it is sent.
func secretOf(s string) (b [secretLen]byte) {
	copy(b[:], s)
	return b
}

// addRegion comes with the descriptor of a file whose first size octets are the region.
type addRegion struct {
	index int
	size  uint64
}

func (a *addRegion) message() *message {
	m := newMessage(msgAddRegion)
	m.put16(2, a.index)
	native.PutUint64(m[4:], a.size)
	return m
}

func (m *message) addRegion() addRegion {
	return addRegion{index: int(m.u16(2)), size: native.Uint64(m[4:])}
}

// addRing comes with an eventfd: what its producer writes to when the consumer wants to be woken.
type addRing struct {
	c2s    bool
	index  int
	region int
	offset uint32
	log2   uint8
}

func (a *addRing) message() *message {
	m := newMessage(msgAddRing)
	if a.c2s {
		m.put16(2, ringC2S)
	}
	m.put16(4, a.index)
	m.put16(6, a.region)
	native.PutUint32(m[8:], a.offset)
	m[12] = a.log2
	return m
}

// The size of private headers, at 13, is of no use to anybody.
func (m *message) addRing() addRing {
	return addRing{
		c2s: m.u16(2)&ringC2S != 0, index: int(m.u16(4)), region: int(m.u16(6)),
		offset: native.Uint32(m[8:]), log2: m[12],
	}
}

// interfaceMessage is a CONNECT or a CONNECTED: each tells the name of the sender's interface.
func interfaceMessage(t msgType, name string) *message {
	m := newMessage(t)
	m.putText(2, nameLen, name)
	return m
}

func (m *message) interfaceName() string { return m.text(2, nameLen) }

func disconnectMessage(reason string) *message {
	m := newMessage(msgDisconnect)
	m.putText(6, reasonLen, reason)
	return m
}

func (m *message) reason() string { return m.text(6, reasonLen) }
