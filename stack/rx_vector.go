package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/mem"
)

// segment makes b, with the octets payload, the one of which input is about.
func (r *receiver) segment(b mem.Buf, payload []byte) {
	r.bufs, r.data = append(r.bufs[:0], b), append(r.data[:0], payload)
}

// coalesced says that frames after the one in hand, whose octets are data, have been looked at with
// it: they are c's.
func (r *receiver) coalesced(c *Conn, data [][]byte) {
	n, head := len(data), r.l4Plain(&c.tcp.ID().Remote)+r.seg.HdrLen
	r.at += n
	r.counters.Coalesced += uint64(n)
	r.counters.RxFrames += uint64(n)
	for _, octets := range data {
		r.counters.RxOctets += uint64(len(octets) + head)
	}
}

// l4Plain is where the TCP header begins in a frame without options or extensions of IP.
func (r *receiver) l4Plain(remote *inet.Addr) int { return r.l2 + iphost.IPLen(remote) }
