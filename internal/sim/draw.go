package sim

import (
	"math/rand/v2"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/tcp"
)

// Dialects that Draw chooses from. What one asks of a QueuePair stands in Conn.param.
var Dialects = []rnic.Dialect{rnic.Culley02, rnic.RDDP01, rnic.RFC5044, rnic.RTR, rnic.RFC6581}

// param is how one end of the connection connects.
func (c *Conn) param(host int) rnic.ConnParam {
	e := &c.Ends[host]
	agrees := c.Acknowledged && c.Dialect == rnic.RFC6581 // which has a bit for it
	conn := rnic.ConnParam{
		NoMarkers: e.NoMarkers, NoCRC: e.NoCRC, DropBadCRC: e.DropBadCRC, Packing: e.Packing,
		ORD: c.Depth[host], IRD: c.Depth[1-host],
		Acknowledged: c.Acknowledged && !agrees, MayAcknowledge: agrees,
	}
	if host == c.Dialer {
		conn.Dialect, conn.PeerToPeer = c.Dialect, c.PeerToPeer
	}
	return conn
}

// drawer makes one Workload.
type drawer struct{ *rand.Rand }

func (d drawer) chance(percent int) bool { return d.IntN(100) < percent }

func pick[T any](d drawer, of ...T) T { return of[d.IntN(len(of))] }

// Draw makes the Workload of a seed: every dimension at once, each with a probability of its own.
func Draw(seed uint64) Workload {
	d := drawer{rand.New(rand.NewPCG(seed, 0xd4a3))}
	wl := Workload{
		WriteMax: pick(d, 200, 4<<10, 16<<10, 16<<10, 64<<10),
		SendMax:  pick(d, 100, 2<<10, 8<<10),
		SharedCQ: d.chance(30),
	}
	wl.Seed = seed
	wl.V6 = d.chance(40)
	wl.MTU = pick(d, 1500, 1500, 1500, 9000, 576, 1280)
	if wl.V6 {
		wl.MTU = max(wl.MTU, 1280)
	}
	if d.chance(25) {
		wl.TCP = tcp.Config{ReceiveWindow: pick(d, 0, 32<<10, 128<<10), NoSACK: d.chance(30),
			NoTimestamps: d.chance(30)}
	}
	d.conns(&wl)
	d.ending(&wl)
	d.cable(&wl)
	d.paths(&wl)
	d.depths(&wl)
	d.shapes(&wl)
	wl.shared()
	// Drawn apart: the rest of a seed's Workload does not depend on it.
	wl.ZeroCopy = rand.New(rand.NewPCG(seed, 0x2e70)).IntN(4) == 0
	wl.Offload = rand.New(rand.NewPCG(seed, 0x0ff1)).IntN(2) == 0
	drawer{rand.New(rand.NewPCG(seed, 0x510e))}.devices(&wl)
	drawer{rand.New(rand.NewPCG(seed, 0xac4d))}.acknowledged(&wl)
	return wl
}

// acknowledged draws connections in that mode, where the dialect has it.
func (d drawer) acknowledged(wl *Workload) {
	for i := range wl.Conns {
		c := &wl.Conns[i]
		c.Acknowledged = d.chance(40) && c.Dialect != rnic.Culley02 && c.Dialect != rnic.RDDP01
	}
}

// devices draws how slow a host's device is: at a rate, by frames a call, or because it stands
// still at times. Both together keep nothing for longer than a start-up waits.
func (d drawer) devices(wl *Workload) {
	for i := range wl.Devices {
		if d.chance(60) {
			continue
		}
		f := &wl.Devices[i]
		switch d.IntN(4) {
		case 0:
			f.Rate = pick[int64](d, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000)
		case 1:
			f.FrameRate = pick[int64](d, 5_000, 50_000, 1_000_000)
		case 2:
			f.PerCall = 1 + d.IntN(40)
		}
		if d.chance(40) {
			f.Stall, f.StallFor = pick(d, 0.0005, 0.005), pick[int64](d, 50_000, 1_000_000, 30_000_000)
		}
	}
}

func (d drawer) conns(wl *Workload) {
	noCRC := d.chance(20) // both ends may do without, so that some connections have none
	wl.Conns = make([]Conn, pick(d, 1, 1, 1, 1, 2, 2, 3, 4))
	wl.Messages = (20 + d.IntN(60)) / min(2, len(wl.Conns))
	for i := range wl.Conns {
		c := &wl.Conns[i]
		c.Dialect = Dialects[d.IntN(len(Dialects))]
		c.Dialer = d.IntN(2)
		drop := d.chance(70)
		for k := range c.Ends {
			c.Ends[k] = End{
				NoMarkers: d.chance(30), NoCRC: d.chance(20), DropBadCRC: drop != d.chance(10),
				Packing: pick(d, rnic.PackNow, rnic.PackNow, rnic.PackFull),
				Base:    pick(d, 0, 0, 4096, 1<<40+d.Uint64N(1<<20), 1<<63), Tied: d.chance(30),
			}
		}
		c.PeerToPeer = (c.Dialect == rnic.RTR || c.Dialect == rnic.RFC6581) && d.chance(50)
		if noCRC && d.chance(70) {
			c.Ends[0].NoCRC, c.Ends[1].NoCRC = true, true
		} else if !noCRC && !c.withCRC() {
			c.Ends[d.IntN(2)].NoCRC = false
		}
		if c.Dialect == rnic.Culley02 { // has no frames to say otherwise
			for k := range c.Ends {
				c.Ends[k].NoMarkers, c.Ends[k].NoCRC = false, false
			}
		}
	}
}

// cable draws what happens to frames. Damage that TCP's checksum does not show needs CRCs
// everywhere.
func (d drawer) cable(wl *Workload) {
	f := &wl.Faults
	scale := pick(d, 0, 0.3, 1, 1, 1, 3) / 100
	if scale > 0 {
		f.Drop = scale * pick(d, 0, 1.0, 1.0)
		f.Reorder = scale * pick(d, 0, 1.0, 5.0)
		f.Duplicate = scale * pick(d, 0, 0.5, 2)
		f.Corrupt = scale * pick(d, 0, 0.2, 0.5)
		f.Truncate = scale * pick(d, 0, 0, 0.2)
		swap := scale * pick(d, 0, 0.2, 0.5)
		for i := range wl.Conns {
			if !wl.Conns[i].withCRC() {
				swap = 0
			}
		}
		f.Swap = swap
	}
	f.Delay = pick[int64](d, 0, 5_000, 20_000, 20_000, 1_000_000, 20_000_000)
	f.Jitter = f.Delay / pick[int64](d, 1, 4, 10)
	switch d.IntN(6) {
	case 0:
		wl.Split = pick(d, 0.02, 0.3, 1)
	case 1:
		wl.Coalesce = pick(d, 0.3, 1)
	case 2:
		wl.Split, wl.Coalesce = pick(d, 0.3, 1), pick(d, 0.5, 1)
	}
}

func (d drawer) ending(wl *Workload) {
	wl.Ending.Host = d.IntN(2)
	if d.chance(40) {
		wl.Ending.Kind = EndKind(d.IntN(int(endKinds)))
		wl.Ending.At = 0.2 + 0.6*d.Float64()
	}
}

// paths draws changes of what the path carries. A black hole is found from a base of 1200 octets
// (RFC 8899), so it carries these; it takes some time-outs.
func (d drawer) paths(wl *Workload) {
	if wl.MTU <= 1280 || d.chance(65) {
		return
	}
	least := 576
	if wl.V6 {
		least = 1280
	}
	at := 0.1 + 0.5*d.Float64()
	for range 1 + d.IntN(3) {
		c := PathChange{At: at, From: pick(d, 0, 1, 2, 2)}
		switch {
		case d.chance(45):
			c.MTU, c.Silent = pick(d, 1280, 1300, 1400), true
		case d.chance(80):
			c.MTU = max(least, pick(d, 576, 700, 1280, 1400, 1499))
		} // else it carries everything again
		wl.Paths = append(wl.Paths, c)
		at += (1 - at) * d.Float64()
	}
}

// duringStartUp are the faults while connections are made: start-up frames have no CRC, so damage
// that TCP's checksum does not show would go unseen there, and ARP has no checksum at all; a peer
// waits 10 s for a frame, whose octets are taken in order only, so that what is late is as good
// as lost.
func (wl *Workload) duringStartUp() fault.Faults {
	f := wl.untilOpen()
	f.Corrupt, f.Swap = 0, 0
	return f
}

// untilOpen are the faults until each Responder has heard its Initiator: for a Ready-to-Receive
// frame or RTR message it waits as long as for a start-up frame.
func (wl *Workload) untilOpen() fault.Faults {
	f := wl.Faults
	f.Drop, f.Reorder = min(f.Drop, 0.01), min(f.Reorder, 0.01)
	return f
}
