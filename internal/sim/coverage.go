package sim

import (
	"fmt"
	"strings"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// Dimension is something that a run had or that happened in it.
type Dimension string

// Dimensions are what a large number of seeds must have covered, in the order in which Coverage
// prints them.
var Dimensions = []Dimension{
	"IPv4", "IPv6", "jumbo frames", "576 octet MTU", "several connections", "both roles on a host",
	"shared completion queue",
	"shared receive queue", "receive queue shared by several",
	"markers both ways", "markers one way", "no markers", "CRC", "no CRC", "one end without CRC",
	"bad CRC dropped", "bad CRC reported", "policies differ", "packed full", "base offset",
	"region tied to a stream",
	"no SACK", "no timestamps", "small window",
	"loss", "reordering", "duplicates", "bit errors", "cut frames", "damage TCP does not see",
	"segments cut", "segments coalesced", "checksums by the device", "segments taken as one",
	"slow device", "device stood still", "nothing lost",
	"path MTU changed", "path MTU reported", "path MTU from one host", "black hole",
	"CRC refused a segment", "CRC ended a connection", "CRC damage survived",
	"peer to peer", "acknowledged mode", "receiver not ready",
	"placed ahead of a gap", "reassembled", "retransmissions", "empty Send",
	"empty Write",
	"Reads", "Reads both ways", "atomics", "immediate data", "Send with Immediate",
	"Send with Invalidate", "Local Invalidate",
	"gathered", "scattered", "inline data",
	"ending orderly", "ending simultaneous", "ending shutdown", "ending abort", "ending vanish",
	"ending revoke",
	"ending revoke-source", "Terminate for a revoked region", "local protection error",
}

// had lists what this run had.
func (r *run) had() map[Dimension]bool {
	h := map[Dimension]bool{}
	r.hadConfig(h)
	r.hadCable(h)
	roles := [2]bool{}
	for i, s := range r.sessions {
		roles[s.c.Dialer] = true
		h["dialect "+Dimension(s.c.Dialect.String())] = true
		s.hadChoices(h)
		s.hadEvents(h, r.wl)
		if i == 0 && (s.ended || !s.early()) {
			h["ending "+Dimension(s.ending.Kind.String())] = true
		}
	}
	h["nothing lost"] = r.lossless()
	h["several connections"] = len(r.sessions) > 1
	h["both roles on a host"] = roles[0] && roles[1]
	return h
}

func (r *run) hadConfig(h map[Dimension]bool) {
	wl := r.wl
	h["IPv4"], h["IPv6"] = !wl.V6, wl.V6
	h["jumbo frames"], h["576 octet MTU"] = wl.MTU > 1500, wl.MTU == 576
	h["shared completion queue"] = wl.SharedCQ
	h["shared receive queue"] = wl.SharedRecv != [2]bool{}
	h["receive queue shared by several"] = wl.SharedRecv != [2]bool{} && len(wl.Conns) > 1
	h["no SACK"], h["no timestamps"], h["small window"] = wl.TCP.NoSACK, wl.TCP.NoTimestamps,
		wl.TCP.ReceiveWindow > 0
}

func (r *run) hadCable(h map[Dimension]bool) {
	mark := func(d Dimension, n uint64) { h[d] = h[d] || n > 0 }
	for i, host := range r.Hosts {
		f, device := host.faulty.Faults()
		mark("slow device", device.Refused)
		mark("device stood still", device.Stalls)
		if !r.cut {
			mark("loss", f.Dropped)
		}
		mark("reordering", f.Reordered)
		mark("duplicates", f.Duplicated)
		mark("bit errors", f.Corrupted)
		mark("cut frames", f.Truncated)
		mark("damage TCP does not see", f.Swapped)
		p := host.path.Did()
		var n stack.Counters
		host.Poller.Snapshot(&n)
		h["checksums by the device"] = r.wl.Offload
		mark("segments taken as one", n.Coalesced)
		mark("segments cut", p.Split)
		mark("segments coalesced", p.Coalesced)
		mark("path MTU reported", p.Reported)
		for _, c := range r.wl.Paths[:r.path] {
			h["path MTU changed"] = true
			h["path MTU from one host"] = h["path MTU from one host"] || c.From < 2
			if c.Silent && (c.From == 2 || c.From == i) {
				mark("black hole", p.TooBig-p.Reported)
			}
		}
	}
}

func (s *session) hadChoices(h map[Dimension]bool) {
	a, b := &s.c.Ends[0], &s.c.Ends[1]
	mark := func(d Dimension, yes bool) { h[d] = h[d] || yes }
	mark("markers both ways", !a.NoMarkers && !b.NoMarkers)
	mark("markers one way", a.NoMarkers != b.NoMarkers)
	mark("no markers", a.NoMarkers && b.NoMarkers)
	mark("CRC", s.c.withCRC())
	mark("no CRC", !s.c.withCRC())
	mark("peer to peer", s.c.PeerToPeer)
	mark("acknowledged mode", s.c.Acknowledged)
	mark("one end without CRC", a.NoCRC != b.NoCRC)
	mark("bad CRC dropped", s.c.withCRC() && (a.DropBadCRC || b.DropBadCRC))
	mark("bad CRC reported", s.c.withCRC() && (!a.DropBadCRC || !b.DropBadCRC))
	mark("policies differ", a.DropBadCRC != b.DropBadCRC)
	for _, e := range s.c.Ends {
		mark("packed full", e.Packing != 0)
		mark("base offset", e.Base != 0)
		mark("region tied to a stream", e.Tied)
	}
}

func (s *session) hadEvents(h map[Dimension]bool, wl *Workload) {
	mark := func(d Dimension, yes bool) { h[d] = h[d] || yes }
	refused := false
	for _, p := range s.peers {
		st := p.stats
		refused = refused || st.Receive.RefusedCRC > 0
		mark("placed ahead of a gap", st.Receive.OutOfOrder > 0)
		mark("receiver not ready", st.NotReadyRecvd > 0)
		mark("reassembled", st.Receive.Reassembled > 0)
		mark("retransmissions", st.TCP.Retransmits > 0)
		mark("empty Send", p.empty[0] > 0)
		mark("empty Write", p.empty[1] > 0)
		mark("local protection error", p.denied)
		did := p.requests.did
		mark("Reads", did[rnic.OpRead] > 0)
		mark("atomics", did[rnic.OpFetchAdd] > 0 && did[rnic.OpCompareSwap] > 0)
		mark("immediate data", did[rnic.OpImmediate] > 0)
		mark("Send with Immediate", did[rnic.OpSendImmediate] > 0)
		mark("Send with Invalidate", did[rnic.OpSendInvalidate] > 0)
		mark("Local Invalidate", did[rnic.OpLocalInvalidate] > 0)
		for d, n := range p.shapes.did {
			mark(d, n > 0)
		}
	}
	mark("Reads both ways", s.peers[0].requests.did[rnic.OpRead] > 0 &&
		s.peers[1].requests.did[rnic.OpRead] > 0)
	mark("CRC refused a segment", refused)
	mark("CRC ended a connection", s.damaged())
	mark("CRC damage survived", refused && s.whole() == nil)
	mark("Terminate for a revoked region", s.ending.Kind == Revoke && s.whole() != nil && s.excused())
}

// Coverage counts, over many runs, how many had each Dimension.
type Coverage struct {
	Runs int
	had  map[Dimension]int
}

// Add counts one run.
func (c *Coverage) Add(out Outcome) {
	if c.had == nil {
		c.had = map[Dimension]int{}
	}
	c.Runs++
	for d, yes := range out.Had {
		if yes {
			c.had[d]++
		}
	}
}

// all are Dimensions and the dialects.
func all() []Dimension {
	d := append([]Dimension(nil), Dimensions...)
	for _, x := range Dialects {
		d = append(d, "dialect "+Dimension(x.String()))
	}
	return d
}

// Missing are the dimensions that no run had.
func (c *Coverage) Missing() (missing []Dimension) {
	for _, d := range all() {
		if c.had[d] == 0 {
			missing = append(missing, d)
		}
	}
	return missing
}

// String is a table.
func (c *Coverage) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "of %d runs so many had\n", c.Runs)
	for _, d := range all() {
		fmt.Fprintf(&b, "  %7d  %s\n", c.had[d], d)
	}
	return b.String()
}
