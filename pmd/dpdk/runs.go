//go:build dpdk

package dpdk

/*
#include "shim.h"
*/
import "C"

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// runs says which runs of segments a device cuts again as they were: TSO for a sender that has laid
// out its segments already, as MPA does with one FPDU or several in each.
//
//	the burst        H1 P1   H2 P2   H3 P3      each in its Buf
//	to the device    H' ──► P1 ──► P2 ──► P3    H', a copy of H1 with the length of all; the Bufs stay
//	on the wire      H1 P1   H2 P2   H3 P3      cut every len(P1) octets
//
// Segments of a run follow each other in sequence and have equal lengths and headers, so that the
// cut gives back what they were: sequence numbers count up, PSH and FIN are on the last alone.
// Only IPv4's identification may count up where it did not, which without fragments means nothing
// (RFC 6864).
type runs struct {
	framesMax int // 1: none
	frameMax  int // longest segment with its headers
	noIPv6    bool
}

const (
	tcpFlagsAt   = 13
	tcpChecksum  = 16
	tcpFIN       = 0x01
	tcpPSH       = 0x08
	tcpACK       = 0x10
	runFramesMax = 44 // full segments of Ethernet in the 64 KiB of an IP packet
	ipLenMax     = 65535
)

func (p *Port) newRuns(can bool) runs {
	if !can {
		return runs{framesMax: 1}
	}
	r := runs{framesMax: min(runFramesMax, int(p.info.chain_max)-1),
		frameMax: p.cfg.MTU + pmd.FrameOverhead}
	if p.driver() == "net_tap" {
		// It compares that with the whole frame, and sends no longer one, ever; librte_gso leaves IPv6
		// uncut.
		r.frameMax, r.noIPv6 = p.cfg.MTU, true
	}
	return r
}

// gather marks the runs among the frames of a burst.
func (q *Queue) gather(burst []mem.Buf) {
	for i := 0; i < len(burst); {
		n, hdr := q.runs.length(q.pool, burst[i:])
		if n > 1 {
			f := &q.io.tx[i]
			last := q.pool.Data(burst[i+n-1])
			f.flags |= C.RNIC_TX_SEGMENT
			f.hdr_len, f.gso_size = C.uint16_t(hdr), C.uint16_t(int(f.len)-hdr)
			f.run, f.run_flags = C.uint16_t(n), C.uint16_t(last[int(f.csum_start)+tcpFlagsAt])
		}
		i += n
	}
}

// length is how many of bufs, from the first on, are a run, and how long their headers are.
func (r *runs) length(pool *mem.Pool, bufs []mem.Buf) (n, hdr int) {
	d, first := pool.Desc(bufs[0]), pool.Data(bufs[0])
	if len(bufs) == 1 || d.Flags&(mem.TxChecksum|mem.TxSegment) != mem.TxChecksum ||
		len(first) > r.frameMax {
		return 1, 0
	}
	l3, l4 := ipAt(first), int(d.CsumStart)
	hdr, ok := leadsRun(first, l3, l4, int(d.CsumOffset))
	if !ok || r.noIPv6 && first[l3]>>4 == 6 {
		return 1, 0
	}
	size := len(first) - hdr
	most := min(len(bufs), r.framesMax, (ipLenMax-(hdr-l3))/size)
	for n = 1; n < most; n++ {
		e, f := pool.Desc(bufs[n]), pool.Data(bufs[n])
		if e.Flags != d.Flags || e.CsumStart != d.CsumStart || e.CsumOffset != d.CsumOffset ||
			!repeats(first, f, l4, hdr, n) {
			break
		}
		if f[l4+tcpFlagsAt] != tcpACK { // PSH or FIN: it is the last
			return n + 1, hdr
		}
	}
	return n, hdr
}

// ipAt is where the IP header begins, after up to two VLAN tags.
func ipAt(f []byte) int {
	at := pmd.EthernetLen
	for at < pmd.FrameOverhead && at <= len(f) &&
		(f[at-2] == 0x81 && f[at-1] == 0 || f[at-2] == 0x88 && f[at-1] == 0xa8) {
		at += 4
	}
	return at
}

// leadsRun says whether f may be the first of a run, and how long its headers are: TCP with
// nothing but ACK in its flags, data after it, in an IPv4 packet that must not be fragmented or
// an IPv6 one, which ends with the frame.
func leadsRun(f []byte, l3, l4, csumOffset int) (hdr int, ok bool) {
	if csumOffset != tcpChecksum || l4+20 > len(f) || l3 >= l4 {
		return 0, false
	}
	hdr = l4 + int(f[l4+12]>>4)*4
	if hdr >= len(f) || hdr < l4+20 || f[l4+tcpFlagsAt] != tcpACK {
		return 0, false
	}
	switch ip := f[l3:]; {
	case f[l3-2] == 0x08 && f[l3-1] == 0x00:
		ok = l3+20 <= l4 && l3+int(ip[0]&0xf)*4 == l4 && ip[0]>>4 == 4 && ip[6]&0xbf == 0 &&
			ip[6]&0x40 != 0 && ip[7] == 0 && ip[9] == 6 &&
			int(binary.BigEndian.Uint16(ip[2:])) == len(ip)
	case f[l3-2] == 0x86 && f[l3-1] == 0xdd:
		ok = l3+40 == l4 && ip[0]>>4 == 6 && ip[6] == 6 && int(binary.BigEndian.Uint16(ip[4:]))+
			40 == len(ip)
	}
	return hdr, ok
}

// repeats says whether f is the k-th segment after first: as long, the next in sequence, with the
// same headers except that FIN and PSH may be set.
func repeats(first, f []byte, l4, hdr, k int) bool {
	if len(f) != len(first) {
		return false
	}
	a, b := first[:hdr], f[:hdr]
	seq := binary.BigEndian.Uint32(a[l4+4:]) + uint32(k*(len(first)-hdr))
	return string(a[:l4+4]) == string(b[:l4+4]) && binary.BigEndian.Uint32(b[l4+4:]) == seq &&
		string(a[l4+8:l4+13]) == string(b[l4+8:l4+13]) && b[l4+tcpFlagsAt]&^(tcpFIN|tcpPSH) == tcpACK &&
		string(a[l4+14:]) == string(b[l4+14:])
}
