package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// send finds the next hop's MAC and puts the frame into the batch, or leaves it with the neighbour
// table.
func (p *Poller) send(b mem.Buf, hop inet.Addr) {
	p.tx.meta[b].queued = true
	if !p.tx.hopKnown || p.tx.hop != hop {
		mac, known, queued, ask := p.neighbours.Lookup(p.now, hop, b)
		if ask {
			to := inet.Broadcast
			if known {
				to = mac
			}
			p.host.Ask(p.now, hop, to)
		}
		if !known {
			if !queued {
				p.n.Own[DropNeighbourFull]++
				p.unqueue(b)
			}
			return
		}
		p.tx.hop, p.tx.hopMAC, p.tx.hopKnown = hop, mac, true
	}
	p.batch(b, p.tx.hopMAC)
}
