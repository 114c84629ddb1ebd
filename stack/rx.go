package stack

import "github.com/rnicd/rnicd/mem"

// receive takes bursts from the device, one more while they come full and are not many octets, and
// returns how many frames there were.
func (p *Poller) receive() int {
	work := 0
	enough := p.n.RxOctets + receivedOctetsMax
	for range burstsPerTurnMax {
		n := p.rx.take()
		for b, ok := p.rx.next(); ok; b, ok = p.rx.next() {
			p.frame(b)
		}
		work += n
		if !p.rx.more { // the flush at the end of the Turn gives the last Bufs back
			break
		}
		if p.n.RxOctets >= enough {
			break
		}
		p.dead.free()
	}
	return work
}

// frame acts on the frame in b.
func (p *Poller) frame(b mem.Buf) {
	done := true
	switch p.rx.frame(p.now, b) {
	case foundSegment:
		done = p.deliver()
	case foundError:
		p.icmpError(p.rx.icmpError)
	case foundDatagram:
		p.rx.udpTo.Datagram(&p.rx.datagram)
	}
	if done {
		p.dead.add(p.rx.buf)
	}
}
