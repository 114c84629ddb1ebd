package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// prefetchFrames reads an octet of each frame's headers and one after them, where the payload
// begins. Frames that another core or a NIC has written are not in this core's cache: read one
// after the other, as each is handled, every one would be waited for. A single frame would only be
// waited for here.
func (r *receiver) prefetchFrames(bufs []mem.Buf) {
	if len(bufs) < 2 {
		return
	}
	sum := byte(0)
	for _, b := range bufs {
		if f := r.pool.Data(b); len(f) > prefetchPayloadAt {
			sum += f[prefetchHeadersAt] + f[prefetchPayloadAt]
		}
	}
	r.read = sum
}

// Octets of a frame, each in a cache line of its own: of IP's header, and of the payload after
// TCP's with timestamps.
const (
	prefetchHeadersAt = inet.EthernetLen + inet.IPv4Len
	prefetchPayloadAt = prefetchHeadersAt + 64
)

// prefetchBurst finds the connections of a burst before any of its frames is handled, and reads a
// word of each of their hot cache lines. With very many connections none of these is in the cache.
// Handled one after the other, each frame would wait for its own misses; read with nothing in
// between, the misses overlap. It decides nothing: a frame that is not TCP directly after a plain
// IP header is left to frame.
func (r *receiver) prefetchBurst(bufs []mem.Buf) {
	if r.table.n < prefetchMin {
		return
	}
	n := 0
	for _, b := range bufs {
		if id, ok := r.tupleOf(r.pool.Data(b)); ok {
			r.conns[n] = connIndex(r.table.hash(&id))
			n++
		}
	}
	sum := byte(0)
	for _, hash := range r.conns[:n] {
		sum += byte(r.table.entries[uint32(hash)&r.table.mask].hash)
	}
	r.read = sum
	for k, hash := range r.conns[:n] {
		r.conns[k] = r.table.candidate(uint32(hash))
	}
	r.ahead.conns(r.conns[:n])
}

// tupleOf is the 4-tuple of a TCP segment whose IP header has neither options nor extensions.
func (r *receiver) tupleOf(f []byte) (id tcp.ID, ok bool) {
	at := r.l2
	if len(f) < at+inet.IPv4Len+tcpHeaderLen {
		return id, false
	}
	switch ports := f[at+inet.IPv4Len:]; {
	case f[at-2] == 0x08 && f[at-1] == 0x00 && f[at] == 0x45 && f[at+9] == inet.ProtoTCP:
		id.Remote, id.Local = inet.AddrFrom4([4]byte(f[at+12:])), inet.AddrFrom4([4]byte(f[at+16:]))
		id.RemotePort, id.LocalPort = binary.BigEndian.Uint16(ports), binary.BigEndian.Uint16(ports[2:])
		return id, true
	case f[at-2] == 0x86 && f[at-1] == 0xdd && f[at+6] == inet.ProtoTCP && len(f) >= at+inet.IPv6Len+
		tcpHeaderLen:
		ports = f[at+inet.IPv6Len:]
		id.Remote, id.Local = inet.Addr(f[at+8:at+24]), inet.Addr(f[at+24:at+40])
		id.RemotePort, id.LocalPort = binary.BigEndian.Uint16(ports), binary.BigEndian.Uint16(ports[2:])
		return id, true
	}
	return id, false
}
