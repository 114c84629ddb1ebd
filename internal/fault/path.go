package fault

import (
	"encoding/binary"
	"fmt"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// PathSpec says what a Path does. The zero value, except for LinkMTU, does nothing.
type PathSpec struct {
	Seed uint64
	// largest IP packet of the device: what is coalesced is cut at that; Bufs of the pool hold it
	LinkMTU int

	MTU    int  // largest IP packet that goes on after the first hop; 0: any
	Silent bool // a larger one is lost without a report: a black hole

	// probability that a TCP segment is coalesced with the one before it, where it continues it
	Coalesce float64
	Split    float64 // probability that what was coalesced, or one segment, is cut at random octets
}

// PathCounters tell what a Path did.
type PathCounters struct {
	TooBig    uint64 // packets lost for their size
	Reported  uint64 // of them, those the sender was told of
	Coalesced uint64 // segments that were coalesced with the one before them
	Split     uint64 // segments, or coalesced ones, that were cut at random octets
	Pieces    uint64 // segments that coalescing and cutting made
	Full      uint64 // frames lost because too many waited, or the pool was empty
}

// pathHeldMax bounds the frames that wait for the next Rx.
const pathHeldMax = 1024

// Path is a stretch of network in front of a device, a pmd.Queue:
//
//	host --Tx--> a router: longer than MTU? lost, and reported unless Silent ---> device
//	host <--Rx-- reports <-- a middlebox that cuts and coalesces TCP segments <------ device
//
// The middlebox is what proxies, and the segmentation offloads of hosts, look like to a receiver:
// octets and their order stay, boundaries do not; an option stays as it was, but the timestamps of
// coalesced segments become the oldest value and the newest echo. It holds nothing from one Rx to
// the next but what Rx's caller had no room for. All methods belong to the goroutine of the queue.
type Path struct {
	inner pmd.Queue
	pool  *mem.Pool
	spec  PathSpec
	box   middlebox
	out   fifo // frames for the host
	burst [burstMax]mem.Buf
	did   PathCounters
}

var _ pmd.Timed = (*Path)(nil)

// WrapPath puts a Path in front of q, whose port must claim no offloads. pool is the one q was
// opened with. Error: a probability or a size that is none.
func WrapPath(q pmd.Queue, pool *mem.Pool, spec PathSpec) (*Path, error) {
	if err := spec.check(pool); err != nil {
		return nil, err
	}
	p := &Path{inner: q, pool: pool, spec: spec, out: newFIFO(pathHeldMax)}
	p.box.init(p)
	return p, nil
}

func (s *PathSpec) check(pool *mem.Pool) error {
	room := pool.Stride() - pool.Headroom() - pmd.FrameOverhead
	switch {
	case !isProbability(s.Coalesce) || !isProbability(s.Split):
		return fmt.Errorf("fault: path: Coalesce is %v and Split is %v; a probability is 0 to 1",
			s.Coalesce, s.Split)
	case s.LinkMTU < mtuMin || s.LinkMTU > room:
		return fmt.Errorf("fault: path: LinkMTU is %d; must be %d to %d, which the pool's Bufs hold",
			s.LinkMTU, mtuMin, room)
	case s.MTU != 0 && s.MTU < mtuMin:
		return fmt.Errorf("fault: path: MTU is %d; must be 0 (any) or at least %d", s.MTU, mtuMin)
	}
	return nil
}

// mtuMin is what every link carries (RFC 791 section 3.2).
const mtuMin = 68

// Set changes what the Path does from the next frame on. Seed and LinkMTU stay as they are.
func (p *Path) Set(spec PathSpec) error {
	spec.Seed, spec.LinkMTU = p.spec.Seed, p.spec.LinkMTU
	if err := spec.check(p.pool); err != nil {
		return err
	}
	p.spec = spec
	return nil
}

// Spec is what the Path does now.
func (p *Path) Spec() PathSpec { return p.spec }

// Rx receives through the middlebox, reports first.
func (p *Path) Rx(bufs []mem.Buf) int {
	n := p.take(bufs)
	if n == len(bufs) {
		return n
	}
	got := p.inner.Rx(p.burst[:min(len(bufs)-n, burstMax)])
	for _, b := range p.burst[:got] {
		d := p.pool.Desc(b)
		if pmd.Incomplete(d) {
			if b = own(p.pool, b); b == mem.NoBuf {
				p.did.Full++
				continue
			}
			d = p.pool.Desc(b)
			pmd.CompleteChecksum(p.pool.Data(b), d.CsumStart, d.CsumOffset)
		}
		d.Flags, d.CsumStart, d.CsumOffset = 0, 0, 0
		p.box.input(b)
	}
	p.box.flush()
	return n + p.take(bufs[n:])
}

// take moves waiting frames to bufs.
func (p *Path) take(bufs []mem.Buf) int {
	for i := range bufs {
		h := p.out.first()
		if h == nil {
			return i
		}
		bufs[i] = h.buf
		p.out.pop()
	}
	return len(bufs)
}

// give makes b wait for the next Rx.
func (p *Path) give(b mem.Buf) {
	if p.out.full() {
		p.did.Full++
		p.pool.Free(b)
		return
	}
	p.out.push(held{buf: b})
}

// Tx sends what the path carries.
func (p *Path) Tx(bufs []mem.Buf) int {
	run := 0 // bufs[run:i] go on and are not handed over yet
	for i, b := range bufs {
		ip, tooBig := p.tooBig(p.pool.Data(b))
		if !tooBig {
			continue
		}
		if n := p.inner.Tx(bufs[run:i]); n < i-run {
			return run + n
		}
		run = i + 1
		p.did.TooBig++
		if !p.spec.Silent {
			p.report(p.pool.Data(b), ip)
		}
	}
	if run == len(bufs) {
		return run
	}
	return run + p.inner.Tx(bufs[run:])
}

// tooBig says whether frame carries an IP packet that the path does not carry, and where it begins.
// One of IPv4 that may be fragmented goes on, as if it had been fragmented and put together again.
func (p *Path) tooBig(frame []byte) (ip int, yes bool) {
	if p.spec.MTU == 0 || len(frame) <= p.spec.MTU {
		return 0, false
	}
	ip, v6, ok := findIP(frame)
	switch {
	case !ok:
		return 0, false
	case v6:
		return ip, len(frame) >= ip+inet.IPv6Len &&
			inet.IPv6Len+int(binary.BigEndian.Uint16(frame[ip+4:])) > p.spec.MTU
	}
	return ip, len(frame) >= ip+inet.IPv4Len &&
		int(binary.BigEndian.Uint16(frame[ip+2:])) > p.spec.MTU && frame[ip+6]&0x40 != 0
}

// report sends the host an ICMP error about frame, whose IP packet begins at ip: RFC 1191 section
// 4, RFC 4443 section 3.2. It comes from the packet's destination, as it does from the far end of a
// tunnel.
func (p *Path) report(frame []byte, ip int) {
	packet := frame[ip:]
	v6 := packet[0]>>4 == 6
	if v6 && !inet.MayReport6(packet) || !v6 && !inet.MayReport(packet) {
		return
	}
	b := p.pool.Alloc()
	if b == mem.NoBuf {
		p.did.Full++
		return
	}
	d := p.pool.Desc(b)
	slot := p.pool.Slot(b)[d.Off:]
	copy(slot, frame[:ip])
	copy(slot, frame[6:12])
	copy(slot[6:], frame[:6])
	out := slot[ip:]
	if v6 {
		src, dst := inet.Addr(packet[24:40]), inet.Addr(packet[8:24])
		n := inet.PutICMP6Error(out[inet.IPv6Len:], inet.ICMP6TooBig, 0, uint32(p.spec.MTU),
			packet, src, dst)
		h := inet.IPv6{NextHeader: inet.ProtoICMPv6, PayloadLen: n, Src: src, Dst: dst}
		h.Put(out)
		d.Len = uint32(ip + inet.IPv6Len + n)
	} else {
		n := inet.PutICMPError(out[inet.IPv4Len:], inet.ICMPUnreachable, inet.ICMPFragNeeded,
			uint32(p.spec.MTU), packet)
		h := inet.IPv4{
			Proto: inet.ProtoICMP, TotalLen: inet.IPv4Len + n,
			Src: inet.AddrFrom4([4]byte(packet[16:])), Dst: inet.AddrFrom4([4]byte(packet[12:])),
		}
		h.Put(out)
		d.Len = uint32(ip + inet.IPv4Len + n)
	}
	p.did.Reported++
	p.give(b)
}

// Counters are the device's.
func (p *Path) Counters() pmd.Counters { return p.inner.Counters() }

// Did tells what the Path did.
func (p *Path) Did() PathCounters { return p.did }

// Deadline is past while frames wait for Rx; else the device's.
func (p *Path) Deadline() int64 {
	if p.out.n > 0 {
		return 0
	}
	return pmd.Deadline(p.inner)
}

// Held is how many Bufs wait in the Path now.
func (p *Path) Held() int { return p.out.n }
