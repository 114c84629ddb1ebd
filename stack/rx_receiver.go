package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/tcp"
)

// receiver takes bursts of frames from the device and finds what each is: it checks and decodes
// Ethernet, IP and TCP, hands the Host what is its own, and lets other members of a Group overhear
// what is theirs too. It calls nothing above it: a segment, or an error about one of ours, is what
// it returns. It frees no Buf except that of a fragment, whose datagram has another.
type receiver struct {
	cfg      *Config
	queue    pmd.Queue
	pool     *mem.Pool
	counters *Counters
	dead     *dead
	host     *iphost.Host
	member   *groupMember
	udpPorts map[uint16]DatagramReceiver // nil: none
	tx       *transmitter                // writes the headers of a segment that came in fragments
	table    *lookup                     // for prefetchBurst
	ahead    *prefetcher
	l2       int // octets of the Ethernet headers we send

	burst []mem.Buf
	at    int         // the one of burst[:end] that is being handled
	end   int         // 0: none is
	more  bool        // the device has more frames than this Turn took
	conns []connIndex // of a burst, for prefetchBurst
	read  byte        // what prefetchFrames read: not used

	// what frame has found: the Buf, and of a segment the rest
	buf       mem.Buf
	src       inet.MAC // the station that it came from
	id        tcp.ID
	seg       tcp.Segment
	octets    []byte           // header and payload
	good      bool             // the device has checked it
	icmpError *inet.ICMPError  // foundError
	udpTo     DatagramReceiver // foundDatagram
	datagram  Datagram

	// of a segment that is given to its connection
	bufs     []mem.Buf // the frames that seg stands for (segment, coalesce)
	data     [][]byte  // and their octets
	arrivals uint64    // segments, or runs of them, whose octets an Upper was offered
}

func newReceiver(p *Poller) receiver {
	cfg := &p.cfg
	n := receiveBurst(cfg)
	return receiver{
		cfg: cfg, queue: cfg.Queue, pool: p.pool, counters: &p.n, dead: &p.dead, host: p.host,
		member: &p.member, tx: &p.tx, table: &p.table, ahead: &p.ahead, l2: p.host.LinkLen(),
		burst: make([]mem.Buf, n),
		conns: make([]connIndex, cfg.BurstMax),
		bufs:  make([]mem.Buf, 0, n),
		data:  make([][]byte, 0, n),
	}
}

// receiveBurst is how many frames are taken from the device at once.
func receiveBurst(cfg *Config) int {
	return min(cfg.BurstMax, max(burstMin, receivedOctetsMax/cfg.MTU))
}

// take takes the next burst from the device, and returns how many frames it has.
func (r *receiver) take() int {
	n := r.queue.Rx(r.burst)
	r.prefetchFrames(r.burst[:n])
	r.prefetchBurst(r.burst[:n])
	r.at, r.end, r.more = -1, n, n == len(r.burst)
	return n
}

// next is the next frame of the burst; false: there is none.
func (r *receiver) next() (mem.Buf, bool) {
	r.at++ // coalesce has moved it over the frames that it took
	if r.at >= r.end {
		return mem.NoBuf, false
	}
	r.counters.RxFrames++
	return r.burst[r.at], true
}

// found is what a frame was.
type found uint8

const (
	foundNothing  found = iota // that is not dealt with
	foundSegment               // r.seg, for connection r.id, in r.buf
	foundError                 // r.icmpError, about what we sent
	foundDatagram              // r.datagram, for r.udpTo
)

// frame handles one frame. In any case r.buf is the Buf that is left to the caller: b, or that of
// the datagram whose last fragment was in b.
func (r *receiver) frame(now int64, b mem.Buf) found {
	r.buf = b
	data := r.pool.Data(b)
	r.counters.RxOctets += uint64(len(data))
	eth, payload, drop := inet.ParseEthernet(data)
	if drop != inet.DropNone {
		return r.drop(drop)
	}
	// RFC 9293 MUST-57, RFC 1122 section 3.2.2: what came by link broadcast is not answered, ARP
	// excepted.
	group := eth.Dst.IsGroup()
	if !group && eth.Dst != r.cfg.MAC {
		return r.drop(inet.DropNotOurs)
	}
	if eth.Type == inet.EtherTypeVLAN || r.cfg.VLAN != 0 {
		if payload, drop = r.untag(&eth, payload); drop != inet.DropNone {
			return r.drop(drop)
		}
	}
	switch {
	case eth.Type == inet.EtherTypeIPv4:
		if group {
			return r.group4(now, b, &eth, payload)
		}
		return r.ipv4(now, b, eth.Src, payload)
	case eth.Type == inet.EtherTypeIPv6 && r.host.HasIPv6():
		return r.ipv6(now, b, eth.Src, payload, group)
	case eth.Type == inet.EtherTypeARP:
		r.member.tell(b)
		return r.drop(r.host.ARP(now, payload))
	}
	return r.drop(inet.DropEtherType)
}

// untag takes the VLAN tag off. It must be ours, or, where we are on no VLAN, one that has a
// priority alone (IEEE 802.1Q section 6.8: VID 0). Where we are on a VLAN, untagged frames are not
// for us, nor those with a priority alone, which count as untagged (section 6.9.1), nor those of
// other VLANs: a station outside a VLAN must not get in.
func (r *receiver) untag(eth *inet.Ethernet, payload []byte) ([]byte, inet.Drop) {
	if eth.Type != inet.EtherTypeVLAN {
		return nil, inet.DropVLAN
	}
	vid, typ, payload, drop := inet.ParseVLAN(payload)
	if drop == inet.DropNone && vid != r.cfg.VLAN {
		drop = inet.DropVLAN
	}
	eth.Type = typ
	return payload, drop
}
