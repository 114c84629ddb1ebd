package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// send finds the next hop's MAC and puts the frame into the batch, or leaves it with the neighbour
// table.
func (x *transmitter) send(now int64, b mem.Buf, hop inet.Addr) {
	x.meta[b].queued = true
	if !x.hopKnown || x.hop != hop {
		mac, known, queued, ask := x.neighbours.Lookup(now, hop, b)
		if ask {
			to := inet.Broadcast
			if known {
				to = mac
			}
			x.host.Ask(now, hop, to)
		}
		if !known {
			if !queued {
				x.counters.Own[DropNeighbourFull]++
				x.unqueue(b)
			}
			return
		}
		x.hop, x.hopMAC, x.hopKnown = hop, mac, true
	}
	x.batch(b, x.hopMAC)
}
